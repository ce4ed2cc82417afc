"""FedEM: elastic merging and similarity aggregation.

Chen, Zhang, Zhang, Luo, Li, "Breaking the Aggregation Bottleneck in Federated Recommendation: A Personalized Model
Merging Approach", AAAI 2026. FedMF's model and loss (Eq. 2); a client merges the table it downloads with its own, item
by item, with weights from a small private network (Eq. 9-11); the server gives every client its own mean of similar
clients' tables (Eq. 13). ``variant`` sets all points in which the paper and the released code differ.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from fedrec.federation.config import LearnedConfig, MethodConfig
from fedrec.federation.method import EachMethod, Method, SumMethod
from fedrec.federation.payload import Payload, State, Table, Upload, table, tensor
from fedrec.federation.store import ClientState, select
from fedrec.federation.task import Task
from fedrec.federation.total import Total
from fedrec.local.fit import Step, fit, fit_mf, take_rows
from fedrec.parts import merging
from fedrec.parts import similarity as alike
from fedrec.parts.scorers import dot
from fedrec.sampling import streams
from fedrec.sampling.samples import Samples

VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {
        "agg_ratio": 1.0,
        "adapter_schedule": "before",
        "train_through_adapter": False,
        "similarity": "table",
        "distance": "squared",
        "sim_snap": None,
        "weights": "scaled",
        "early_stop_tol": 0.0,
    },
    "code": {
        "agg_ratio": 0.1,
        "adapter_schedule": "interleaved",
        "train_through_adapter": True,
        "similarity": "pca1",
        "distance": "plain",
        "sim_snap": 0.9,
        "weights": "unscaled",
        "early_stop_tol": 1e-4,
    },
}


class FedEMConfig(LearnedConfig):
    """Settings of FedEM; the settings of its tables are the defaults."""

    epochs: int = Field(10, ge=1)
    lr: float = Field(0.1, gt=0)
    init_std: float = Field(1.0, gt=0)
    common_init: bool = True
    """All clients start from the same user vector and adapter."""
    variant: Literal["paper", "code"] = "paper"
    """Sets the options below as the paper describes the method or as the released code runs; any can be overridden."""
    merge: merging.Mode = "elastic"
    """replace (SR), static (SM), dynamic (DM), elastic (EM), or none (no federation)."""
    rho: float = Field(0.5, ge=0, le=1)
    """Weight of the downloaded table under static merging."""
    dynamic_pool: merging.Pool = "items"
    """Dynamic merging: mean of the adapter over all items, or the adapter of the mean row."""
    adapter_hidden: tuple[Annotated[int, Field(ge=1)], ...] = (16, 8)
    adapter_lr: float | None = Field(None, gt=0)
    """beta; by default ``lr``."""
    adapter_epochs: int | None = Field(None, ge=1)
    """Length of the adapter phase; by default ``epochs``."""
    alpha: float = Field(0.9, ge=0)
    agg: Literal["both", "mean", "similarity"] = "both"
    """Data weights and similarity (Eq. 13), data weights alone, or similarities divided by their sum."""
    agg_ratio: float = Field(1.0, gt=0, le=1)
    """Share of the participants that upload, are aggregated, and get a table."""
    adapter_schedule: Literal["before", "interleaved"] = "before"
    """Adapter phase before merging (Eq. 11, then 10), or one adapter step before every embedding step."""
    train_through_adapter: bool = False
    """Embedding steps look through the adapter (rows are then merged twice), or score p . q directly (Eq. 12)."""
    similarity: alike.Kind = "table"
    distance: alike.Distance = "squared"
    sim_snap: float | None = None
    """Similarities above this become 1."""
    pca_sign: alike.Sign = "fixed"
    weights: alike.Weights = "scaled"
    early_stop_tol: float = Field(0.0, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _fill_variant(cls, values: dict[str, Any]) -> dict[str, Any]:
        preset = VARIANTS.get(values.get("variant", "paper"), {})
        return preset | values

    @model_validator(mode="after")
    def _consistent(self) -> FedEMConfig:
        if self.merge == "dynamic" and (self.adapter_schedule == "interleaved" or self.train_through_adapter):
            raise ValueError("dynamic merging needs adapter_schedule=before and train_through_adapter=false")
        if self.optimizer != "adam" and self.merge in ("dynamic", "elastic"):
            raise ValueError("the adapter is trained with adam; set optimizer=adam or another merge mode")
        return self


class FedEM(Method):
    """FedMF + merging + similarity aggregation."""

    name = "fedem"
    title = "elastic merging of personal and aggregated item tables, similarity aggregation"
    paper = "Chen et al., AAAI 2026"
    private = "user vector (d), item table (m x d), adapter (673 numbers at d = 16)"
    uploaded = "item table (m x d)"
    server_keeps = "one item table (m x d) per aggregated client"
    Config = FedEMConfig
    config: FedEMConfig

    @classmethod
    def kind_for(cls, config: MethodConfig) -> type[Self]:
        """With plain means the server needs sums only, with similarities every table."""
        plain: Any = MeanFedEM if isinstance(config, FedEMConfig) and config.agg == "mean" else SimilarFedEM
        return plain

    @property
    def widths(self) -> tuple[int, ...]:
        """Layers of the adapter."""
        return merging.adapter_widths(self.config.dim, self.config.adapter_hidden)

    @property
    def adapts(self) -> bool:
        """Whether clients have adapters at all."""
        return self.config.merge in ("dynamic", "elastic")

    def server_state(self, task: Task) -> State:
        """No tables yet; ``uploads`` marks the clients drawn to upload in the coming round."""
        empty = torch.zeros(0, task.n_items, self.config.dim, device=task.device)
        server = {"tables": empty, "slot": torch.full((task.n_clients,), -1, dtype=torch.int64)}
        return server | {"uploads": self._uploaders(task, server, 0)}

    def _uploaders(self, task: Task, server: State, round: int) -> Tensor:
        """The random share of a round's participants whose tables are aggregated."""
        drawn = self.participants(task, server, round)
        if self.config.agg_ratio < 1:
            rng = np.random.default_rng([task.seed, int(streams.Purpose.OTHER), round])
            k = max(1, int(self.config.agg_ratio * len(drawn)))
            drawn = drawn[torch.from_numpy(rng.choice(len(drawn), k, replace=False))]
        chosen = torch.zeros(task.n_clients, dtype=torch.bool)
        chosen[drawn] = True
        return chosen

    def _start(self, task: Task) -> Tensor:
        """The item table all clients start from: a function of the seed, known to everybody."""
        return task.normal(task.n_items, self.config.dim, std=self.config.init_std, generator=task.generator())

    def client_state(self, task: Task, clients: Tensor) -> State:
        """User vectors and a copy of the common item table; adapters U(+-1/sqrt(fan in))."""
        c = self.config
        state = {
            "user": task.client_normal(clients, c.dim, std=c.init_std, common=c.common_init),
            "items": self._start(task).expand(len(clients), -1, -1),
        }
        if self.adapts:
            who = torch.zeros(1, dtype=torch.int64) if c.common_init else clients.cpu()
            keys = streams.child(streams.keys(task.seed, streams.Purpose.INIT, 0, who), 1)
            theta = merging.init_adapters(self.widths, keys)
            state["adapter"] = theta.expand(len(clients), -1).to(task.device)
        return state

    def server_bytes(self, private: int) -> int:
        """One table per aggregated client."""
        return int(private * self.config.agg_ratio)

    def kinds(self, task: Task, server: State, clients: Tensor) -> Tensor:
        """Clients with and without a server table, that upload or do not."""
        who = clients.cpu()
        return 2 * (server["slot"][who] >= 0).long() + server["uploads"][who].long()

    def broadcast(self, task: Task, server: State, clients: Tensor) -> Payload:
        """The client's own mean of similar tables, where it has one, and whether it is drawn to upload."""
        who = clients.cpu()
        payload: Payload = {"upload": server["uploads"][who]}
        slots = server["slot"][who]
        if len(slots) and int(slots[0]) >= 0 and self.config.merge != "none":
            tables = server["tables"]
            payload["items"] = tables.expand(len(slots), -1, -1) if len(tables) == 1 else select(tables, slots)
        return payload

    def train(
        self, task: Task, private: ClientState, payload: Payload, samples: Samples, round: int
    ) -> tuple[Payload, Tensor]:
        """Merge, then train locally (section 3 of the paper); the order of both is the variant's."""
        c = self.config
        user = private["user"].clone()
        server = tensor(payload, "items") if "items" in payload else None
        theta = private["adapter"].clone() if self.adapts else None
        if server is not None:
            if theta is not None and c.adapter_schedule == "before":
                self._adapter_phase(private, theta, user, server, samples)
            private["items"] = self._merged(private["items"], server, theta)
        block = private.take("items", samples)
        if (
            server is not None
            and theta is not None
            and (c.adapter_schedule == "interleaved" or c.train_through_adapter)
        ):
            loss = self._train_with_adapter(theta, user, block, take_rows(server, samples), samples)
        else:
            loss = fit_mf(
                user, block, samples,
                epochs=c.epochs, batch_size=c.batch_size, lr=c.lr, optimizer=c.optimizer, early_stop_tol=c.early_stop_tol,
            )  # fmt: skip
        private.put("items", samples, block)
        private["user"] = user
        if theta is not None:
            private["adapter"] = theta
        if c.merge == "none" or not bool(tensor(payload, "upload")[0]):
            return {}, loss
        items = private["items"]
        # The merged table carries earlier training, so only the download, or the common start, is known to the server.
        return {"items": Table(items, server if server is not None else self._start(task).expand_as(items))}, loss

    def _merged(self, local: Tensor, server: Tensor, theta: Tensor | None) -> Tensor:
        c = self.config
        return merging.merge(c.merge, local, server, theta=theta, widths=self.widths, rho=c.rho, pool=c.dynamic_pool)

    def _adapter_phase(
        self, clients: ClientState, theta: Tensor, user: Tensor, server: Tensor, samples: Samples
    ) -> None:
        """Eq. 11: only the adapter moves, through the merged rows."""
        c = self.config
        pool = merging.pool_rows(c.dynamic_pool, clients["items"], server) if c.merge == "dynamic" else None
        merging.fit_adapter(
            theta, user, clients.take("items", samples), take_rows(server, samples), samples,
            widths=self.widths, epochs=c.adapter_epochs or c.epochs, batch_size=c.batch_size,
            lr=c.adapter_lr or c.lr, early_stop_tol=c.early_stop_tol, pool=pool,
        )  # fmt: skip

    def _train_with_adapter(
        self, theta: Tensor, user: Tensor, block: Tensor, server: Tensor, samples: Samples
    ) -> Tensor:
        c = self.config
        beta = c.adapter_lr or c.lr
        if c.adapter_schedule == "interleaved" and c.train_through_adapter:
            return merging.fit_interleaved(
                theta, user, block, server, samples,
                widths=self.widths, epochs=c.epochs, batch_size=c.batch_size,
                lr=c.lr, adapter_lr=beta, early_stop_tol=c.early_stop_tol,
            )  # fmt: skip
        through = merging.adapter_loss(self.widths)
        if c.adapter_schedule == "before":
            steps = [Step(("user", "local"), c.lr)]
        else:
            steps = [Step(("adapter",), beta), Step(("user", "local"), c.lr, loss=merging.plain_loss)]
        params = {"adapter": theta, "user": user, "local": block, "server": server}
        return fit(
            params, through, samples,
            epochs=c.epochs, batch_size=c.batch_size, steps=steps, early_stop_tol=c.early_stop_tol,
        )  # fmt: skip

    def _next(self, task: Task, server: State, round: int, slot: Tensor, tables: Tensor | None) -> State:
        """The server's state with new tables, and who uploads next."""
        new = server if tables is None else server | {"tables": tables}
        return new | {"slot": slot, "uploads": self._uploaders(task, server, round + 1)}

    def scores(self, task: Task, private: ClientState, payload: Payload) -> Tensor:
        """p_u . q_i with the merged table where the client has a server table, else with its own."""
        items = private["items"]
        if "items" in payload:
            theta = private["adapter"] if self.adapts else None
            items = self._merged(items, tensor(payload, "items"), theta)
        return dot(private["user"], items)


class MeanFedEM(FedEM, SumMethod):
    """``agg=mean``: every aggregated client gets the same table, the mean weighted by data."""

    def contribute(self, task: Task, upload: Upload, total: Total) -> None:
        """n_u times the table, n_u, and how many clients: their slots are the round's uploaders."""
        tables = table(upload.parts, "items").value
        total.add("items", torch.tensordot(upload.weights, tables, dims=1))
        total.add("size", upload.weights.sum())

    def step(self, task: Task, server: State, total: Total, round: int) -> State:
        """The weighted mean."""
        slot = torch.full_like(server["slot"], -1)
        if not total:
            return self._next(task, server, round, slot, None)
        slot[server["uploads"]] = 0
        return self._next(task, server, round, slot, (total["items"] / total["size"])[None])


class SimilarFedEM(FedEM, EachMethod):
    """Every aggregated client gets its own mean, weighted by data and similarity."""

    def step(self, task: Task, server: State, uploads: list[Upload], round: int) -> State:
        """Eq. 13 for every uploading client; needs all their tables at once."""
        c = self.config
        slot = torch.full_like(server["slot"], -1)
        if not uploads:
            return self._next(task, server, round, slot, None)
        tables = [table(upload.parts, "items").value for upload in uploads]
        size = torch.cat([upload.weights for upload in uploads])
        share = size / size.sum()
        who = torch.cat([upload.clients.cpu() for upload in uploads])
        slot[who] = torch.arange(len(who))
        near = alike.similarities(tables, c.similarity, c.distance, snap=c.sim_snap, sign=c.pca_sign)
        if c.agg == "similarity":
            weights = near / near.sum(1, keepdim=True)
        else:
            weights = alike.simplex_weights(near, share, c.alpha, c.weights)
        return self._next(task, server, round, slot, alike.mix(weights, tables))
