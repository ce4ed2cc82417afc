"""Merging for clients of different size: the downloaded table of a client's size with its own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedrec.federation.method import Task
from fedrec.federation.payload import State
from fedrec.federation.store import ClientState
from fedrec.local.adapters import MergingAdapter, adapter_widths
from fedrec.local.fit import Batch, Params, Schedule, Step, fit, take_rows
from fedrec.parts import merging
from fedrec.parts.hetero_config import HeteFedRecConfig
from fedrec.parts.hetero_local import stack_padded, widened
from fedrec.parts.hetero_models import NestedModel
from fedrec.sampling import streams
from fedrec.sampling.samples import Samples


class OwnTables:
    """Each client keeps a table of its own size and an adapter for its columns."""

    def __init__(self, config: HeteFedRecConfig, model: NestedModel, places: Sequence[int]) -> None:
        """``places`` is the size each group trains."""
        self.config, self.model, self.places = config, model, places
        self.used = config.merge != "replace"

    def widths(self, size: int) -> tuple[int, ...]:
        """Layers of the adapter of a size."""
        return adapter_widths(self.config.sizes[size], self.config.adapter_hidden)

    def state(self, task: Task, group: Tensor) -> State:
        """Empty tables, filled at the first download, and the initial adapter of each size; padded to the widest."""
        if not self.used:
            return {}
        n, widest = len(group), self.config.sizes[max(self.places)]
        state = {
            "local": torch.zeros(1, task.n_items, widest, device=task.device).expand(n, -1, -1),
            "started": torch.zeros(n, dtype=torch.bool, device=task.device),
        }
        if self.config.merge == "elastic":
            keys = streams.child(streams.keys(task.seed, streams.Purpose.INIT, 0, torch.zeros(1, dtype=torch.int64)), 1)
            adapters = [MergingAdapter(self.widths(place)).network.draw_each(keys)[0] for place in self.places]
            state["adapter"] = stack_padded(adapters).to(task.device)[group]
        return state

    def merged(
        self,
        clients: ClientState,
        server: Tensor,
        size: int,
        params: Params | None = None,
        samples: Samples | None = None,
    ) -> Tensor:
        """The download as it is, or merged with the own table; with ``samples`` the adapter is trained first."""
        c, widths, theta = self.config, self.widths(size), None
        if not self.used:
            return server
        local = torch.where(clients["started"][:, None, None], clients["local"][..., : server.shape[2]], server)
        if c.merge == "elastic":
            theta = clients["adapter"][:, : MergingAdapter(widths).network.size].clone()
            if params is not None and samples is not None:
                self._fit(theta, params, local, server, samples, size)
                clients["adapter"] = widened(theta, clients["adapter"])
        return merging.merge(c.merge, local, server, theta=theta, widths=widths, rho=c.rho)

    def _fit(self, theta: Tensor, params: Params, own: Tensor, server: Tensor, samples: Samples, size: int) -> None:
        """Train the adapters alone, through the client's own loss on merged rows (Eq. 11 of FedEM)."""
        c, adapter = self.config, MergingAdapter(self.widths(size))

        def loss(params: Params, batch: Batch) -> Tensor:
            block = adapter.merged_rows(params, params["local"], params["server"])
            return self.model.loss(params | {"block": block}, size, batch.slots, batch.bce)

        work = params | {"adapter": theta, "local": take_rows(own, samples), "server": take_rows(server, samples)}
        # A single gradient per visit sees all samples at once; so does the adapter then.
        batch = c.batch_size if c.local == "epochs" else max(1, samples.items.shape[1])
        fit(work, loss, samples, Schedule(c.adapter_epochs, batch), [Step(("adapter",), c.adapter_lr)])

    def keep(self, clients: ClientState, table: Tensor) -> None:
        """Remember the table after training."""
        clients["local"] = widened(table, clients["local"])
        clients["started"] = torch.ones_like(clients["started"])
