"""Elastic merging for any method that downloads an item table (Table 3 of FedEM).

Instead of overwriting its table with the download, a client merges both, trains from the result, keeps it, and uploads
it. Everything else stays the method's own: this subclass of it changes the download on the way in and the upload on the
way out, and trains the adapters through the method's own loss.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import create_model
from torch import Tensor

from fedrec.errors import ConfigError
from fedrec.federation.arrows import Arrows
from fedrec.federation.config import MethodConfig
from fedrec.federation.payload import Payload, State, change, tensor
from fedrec.federation.recommender import Recommender
from fedrec.federation.store import ClientState
from fedrec.federation.task import Task
from fedrec.local.fit import Schedule, take_rows
from fedrec.parts.merger import ADAPTER, Merger, MergeSettings, empty_table, keep_table, own_table
from fedrec.parts.table_method import TableMethod
from fedrec.sampling.samples import Samples


class MergedMethod(TableMethod):
    """The part of a merged method that merges; ``merged`` puts it in front of a method."""

    def __init__(self, config: MethodConfig | None = None, **options: Any) -> None:
        """The name says how clients merge."""
        super().__init__(config, **options)
        self.name = f"{type(self).name}+{self.merge_settings.merge}"

    @property
    def merge_settings(self) -> MergeSettings:
        """The settings of merging among the method's."""
        assert isinstance(self.config, MergeSettings)
        return self.config

    @property
    def merger(self) -> Merger:
        """Merging of the method's table."""
        return Merger(self.merge_settings, self.table_dim)

    def client_state(self, task: Task, clients: Tensor) -> State:
        """The method's, and an own table and adapter."""
        state = super().client_state(task, clients) | empty_table(task, len(clients), self.table_dim)  # type: ignore[safe-super]
        if self.merger.adapts:
            state[ADAPTER] = self.merger.draw(task, stream=77).expand(len(clients), -1)
        return state

    def train(
        self, task: Task, private: ClientState, payload: Payload, samples: Samples, round: int
    ) -> tuple[Payload, Tensor]:
        """Adapter phase (Eq. 11), merge (Eq. 10), then the method's own local training from the merged table."""
        server = tensor(payload, self.table)
        local, theta = own_table(private, server), None
        if self.merger.adapts:
            theta = private[ADAPTER].clone()
            self._adapt(theta, private, payload, local, samples)
            private[ADAPTER] = theta
        table = self.merger.merged(local, server, theta)
        parts, loss = super().train(task, private, payload | {self.table: table}, samples, round)
        after = table + change(parts[self.table])
        keep_table(private, after)
        return parts | {self.table: after - server}, loss

    def _adapt(self, theta: Tensor, private: ClientState, payload: Payload, local: Tensor, samples: Samples) -> None:
        s, server = self.merge_settings, tensor(payload, self.table)
        params = {name: tensor(payload, name) for name in self.shared_names} | self.private_params(private, samples)
        rows = take_rows(local, samples), take_rows(server, samples)
        through = self.through_merging(self.merger.adapter, samples.round)
        schedule = Schedule(s.adapter_epochs, self.config.batch_size)
        self.merger.adapt(theta, params, rows, samples, schedule, s.adapter_lr, tables=(local, server), through=through)

    def scores(self, task: Task, private: ClientState, payload: Payload) -> Tensor:
        """The method's scores with the merged table."""
        server = tensor(payload, self.table)
        theta = private[ADAPTER] if self.merger.adapts else None
        payload = payload | {self.table: self.merger.merged(own_table(private, server), server, theta)}
        if self.table_view is None:
            return super().scores(task, private, payload)  # type: ignore[safe-super]
        return super().view_scores(task, self.table_view, private, payload)


@cache
def merged(kind: type[Recommender]) -> type[Arrows]:
    """The method whose clients merge the downloaded table with their own."""
    if not issubclass(kind, TableMethod):
        raise ConfigError(f"{kind.name} downloads no item table, so there is nothing to merge; leave merging out.")
    config = create_model(f"Merged{kind.Config.__name__}", __base__=(kind.Config, MergeSettings))
    return type(f"Merged{kind.__name__}", (MergedMethod, kind), {"Config": config, "__doc__": kind.__doc__})
