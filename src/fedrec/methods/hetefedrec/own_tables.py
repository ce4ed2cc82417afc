"""Merging for clients of different size: the downloaded table of a client's size with its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from fedrec.federation.payload import State
from fedrec.federation.store import ClientState
from fedrec.federation.task import Task
from fedrec.local.fit import Params, Schedule, take_rows
from fedrec.local.problem import LossOnly
from fedrec.methods.hetefedrec.config import HeteFedRecConfig
from fedrec.methods.hetefedrec.local_work import stack_padded
from fedrec.methods.hetefedrec.models import NestedModel
from fedrec.parts.merger import ADAPTER, MergedBlock, Merger, empty_table
from fedrec.sampling.samples import Samples


class OwnTables:
    """Each client keeps a table of its own size and an adapter for its columns."""

    def __init__(self, config: HeteFedRecConfig, model: NestedModel, trains: Sequence[int]) -> None:
        """``trains`` is the size each group trains."""
        self.config, self.model, self.trains = config, model, trains
        self.used = config.merge != "replace"

    def merger(self, size: int) -> Merger:
        """Merging of the tables of a size."""
        return Merger(self.config, self.config.sizes[size])

    def state(self, task: Task, group: Tensor) -> State:
        """Empty tables and the initial adapter of each size; padded to the widest."""
        if not self.used:
            return {}
        state = empty_table(task, len(group), self.config.sizes[max(self.trains)])
        if self.merger(0).adapts:
            state[ADAPTER] = stack_padded([self.merger(size).draw(task, stream=1)[0] for size in self.trains])[group]
        return state

    def merged(
        self,
        private: ClientState,
        server: Tensor,
        size: int,
        params: Params | None = None,
        samples: Samples | None = None,
    ) -> Tensor:
        """The download as it is, or merged with the own table; with ``samples`` the adapter is trained first."""
        if not self.used:
            return server
        if params is None or samples is None:
            return self.merger(size).update(private, server)
        return self.merger(size).update(private, server, self._adaptation(params, server, samples, size))

    def _adaptation(
        self, params: Params, server: Tensor, samples: Samples, size: int
    ) -> Callable[[Tensor, Tensor], None]:
        c, merger = self.config, self.merger(size)
        own = LossOnly(lambda params, batch: self.model.loss(params, size, batch.slots, batch.bce))
        # A single gradient per visit sees all samples at once; so does the adapter then.
        batch_size = c.batch_size if c.local == "epochs" else max(1, samples.items.shape[1])

        def adapt(theta: Tensor, local: Tensor) -> None:
            rows = take_rows(local, samples), take_rows(server, samples)
            merger.adapt(
                theta, params, rows, samples, Schedule(c.adapter_epochs, batch_size), c.adapter_lr,
                tables=lambda: (local, server), through=MergedBlock(merger.adapter, own),
            )  # fmt: skip

        return adapt
