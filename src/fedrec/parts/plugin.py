"""Elastic merging for any method that downloads an item table (section 8 of FedEM's card, its Table 3).

Instead of overwriting its table with the download, a client merges both, trains from the result, keeps it, and uploads
it. Everything else stays the method's own: this wrapper changes the download on the way in and the upload on the way
out, and trains the adapters through the method's own loss.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from fedrec.data.training import TrainingView
from fedrec.errors import ConfigError
from fedrec.federation.method import Method, Task
from fedrec.federation.payload import Payload, State, Upload, change, tensor
from fedrec.federation.store import ClientState
from fedrec.local.fit import take_rows
from fedrec.parts import merging
from fedrec.parts.table_method import TableMethod
from fedrec.sampling import streams
from fedrec.sampling.samples import Samples

LOCAL, ADAPTER, STARTED = "merge.local", "merge.adapter", "merge.started"


class MergeSettings(BaseModel):
    """How clients merge."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: merging.Mode = "elastic"
    rho: float = Field(0.5, ge=0, le=1)
    """Weight of the download under static merging."""
    dynamic_pool: merging.Pool = "items"
    hidden: tuple[int, ...] = (16, 8)
    lr: float = Field(0.1, gt=0)
    """Learning rate of the adapter (beta)."""
    epochs: int = Field(10, ge=1)
    """Epochs of the adapter phase."""


class Merged(Method):
    """A method whose clients merge the downloaded table with their own."""

    def __init__(self, base: Method, settings: MergeSettings | None = None) -> None:
        """Wrap ``base``, which must download an item table."""
        if not isinstance(base, TableMethod):
            raise ConfigError(f"{base.name} downloads no item table, so there is nothing to merge; leave merge out.")
        self.base, self.merge = base, settings or MergeSettings()
        self.config = base.config
        self.rounds = base.rounds
        self.dim = base.table_dim
        merging.check_widths(self.widths, self.dim)

    @property
    def name(self) -> str:  # type: ignore[override]
        """The method's name with the merge mode."""
        return f"{self.base.name}+{self.merge.mode}"

    @property
    def widths(self) -> tuple[int, ...]:
        """Layers of the adapter."""
        return merging.adapter_widths(self.dim, self.merge.hidden)

    @property
    def adapts(self) -> bool:
        """Whether clients have adapters."""
        return self.merge.mode in ("dynamic", "elastic")

    def describe_config(self) -> dict[str, Any]:
        """The method's settings and the merging's."""
        return self.base.describe_config() | {"merge": self.merge.model_dump(mode="json")}

    @property
    def negatives(self) -> int:
        """As the method draws them."""
        return self.base.negatives

    def sampling_round(self, round: int) -> int:
        """As the method."""
        return self.base.sampling_round(round)

    def server_state(self, task: Task) -> State:
        """The method's."""
        return self.base.server_state(task)

    def server_bytes(self, private: int) -> int:
        """The method's."""
        return self.base.server_bytes(private)

    def client_state(self, task: Task, clients: Tensor) -> State:
        """The method's, and an own table (filled at the first download) and adapter."""
        state = self.base.client_state(task, clients)
        state[LOCAL] = torch.zeros(1, task.n_items, self.dim, device=task.device).expand(len(clients), -1, -1)
        state[STARTED] = torch.zeros(len(clients), dtype=torch.bool, device=task.device)
        if self.adapts:
            keys = streams.child(
                streams.keys(task.seed, streams.Purpose.INIT, 0, torch.zeros(1, dtype=torch.int64)), 77
            )
            theta = merging.init_adapters(self.widths, keys)
            state[ADAPTER] = theta.expand(len(clients), -1).to(task.device)
        return state

    def own_data(self, view: TrainingView, clients: Tensor) -> State:
        """The method's."""
        return self.base.own_data(view, clients)

    def participants(self, task: Task, server: State, round: int, rng: np.random.Generator) -> Tensor:
        """The method's choice."""
        return self.base.participants(task, server, round, rng)

    def kinds(self, server: State, clients: Tensor) -> Tensor | None:
        """The method's."""
        return self.base.kinds(server, clients)

    def broadcast(self, server: State, clients: Tensor) -> Payload:
        """The method's download."""
        return self.base.broadcast(server, clients)

    def train(self, clients: ClientState, payload: Payload, samples: Samples, round: int) -> tuple[Payload, Tensor]:
        """Adapter phase (Eq. 11), merge (Eq. 10), then the method's own local training from the merged table."""
        server = tensor(payload, self.base.table)
        local = self._local(clients, server)
        theta = clients[ADAPTER].clone() if self.adapts else None
        if theta is not None:
            shared = {name: tensor(payload, name) for name in self.base.shared_names}
            self._adapter_phase(clients, theta, local, server, samples, shared)
            clients[ADAPTER] = theta
        merged = self._merged(local, server, theta)
        parts, loss = self.base.train(clients, payload | {self.base.table: merged}, samples, round)
        after = merged + change(parts[self.base.table])
        clients[LOCAL] = after
        clients[STARTED] = torch.ones(len(clients), dtype=torch.bool, device=after.device)
        return parts | {self.base.table: after - server}, loss

    def _local(self, clients: ClientState, server: Tensor) -> Tensor:
        return torch.where(clients[STARTED][:, None, None], clients[LOCAL], server)

    def _adapter_phase(
        self, clients: ClientState, theta: Tensor, local: Tensor, server: Tensor, samples: Samples, shared: State
    ) -> None:
        m = self.merge
        private = shared | self.base.private_params(clients, samples)
        pool = merging.pool_rows(m.dynamic_pool, local, server) if m.mode == "dynamic" else None
        self.base.fit_adapter(
            theta, private, take_rows(local, samples), take_rows(server, samples), samples,
            widths=self.widths, epochs=m.epochs, lr=m.lr, pool=pool,
        )  # fmt: skip

    def _merged(self, local: Tensor, server: Tensor, theta: Tensor | None) -> Tensor:
        m = self.merge
        return merging.merge(m.mode, local, server, theta=theta, widths=self.widths, rho=m.rho, pool=m.dynamic_pool)

    def aggregate(self, server: State, uploads: Iterable[Upload], round: int) -> State:
        """The method's rule, on whole tables."""
        return self.base.aggregate(server, uploads, round)

    def scores(self, clients: ClientState, payload: Payload) -> Tensor:
        """The method's scores with the merged table."""
        server = tensor(payload, self.base.table)
        theta = clients[ADAPTER] if self.adapts else None
        merged = self._merged(self._local(clients, server), server, theta)
        return self.base.table_scores(clients, payload | {self.base.table: merged})
