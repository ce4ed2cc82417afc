"""Elastic merging for any method that downloads an item table (Table 3 of FedEM).

Instead of overwriting its table with the download, a client merges both, trains from the result, keeps it, and uploads
it. Everything else stays the method's own: this subclass of it changes the download on the way in and the upload on the
way out, and trains the adapters through the method's own loss.
"""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar

from pydantic import create_model
from torch import Tensor

from fedrec.errors import ConfigError
from fedrec.federation.arrows import Arrows
from fedrec.federation.config import MethodConfig
from fedrec.federation.mixture import Mixture
from fedrec.federation.payload import Payload, State, change, tensor
from fedrec.federation.recommender import Recommender
from fedrec.federation.store import ClientState
from fedrec.federation.task import Task
from fedrec.local.fit import Schedule, take_rows
from fedrec.parts.merger import ADAPTER, Merger, MergeSettings, empty_table, keep_table
from fedrec.parts.table_method import TableMethod
from fedrec.sampling.samples import Samples

STREAM = 77
"""Of the initial adapters: apart from whatever a method draws for itself."""


class MergedMethod(TableMethod):
    """The part of a merged method that merges; ``merged`` puts it in front of a method."""

    base: ClassVar[type[Recommender]]
    """The method that is merged."""

    def __init__(self, config: MethodConfig | None = None, **options: Any) -> None:
        """The name says how clients merge."""
        super().__init__(config, **options)
        self.name = f"{type(self).name}+{self.merge_settings.merge}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies are made anew: the class has no place of its own to be found at."""
        return (_rebuilt, (self.base, self.describe_config()), {"rounds": self.rounds})

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
            state[ADAPTER] = self.merger.draw(task, stream=STREAM).expand(len(clients), -1)
        return state

    def train(
        self, task: Task, private: ClientState, payload: Payload, samples: Samples, round: int
    ) -> tuple[Payload, Tensor]:
        """Adapter phase (Eq. 11), merge (Eq. 10), then the method's own local training from the merged table."""
        server = tensor(payload, self.table)

        def adapt(theta: Tensor, local: Tensor) -> None:
            params = {name: tensor(payload, name) for name in self.shared_names}
            params |= self.private_params(private, samples)
            rows, s = (take_rows(local, samples), take_rows(server, samples)), self.merge_settings
            self.merger.adapt(
                theta, params, rows, samples, Schedule(s.adapter_epochs, self.config.batch_size), s.adapter_lr,
                tables=lambda: (local, server), through=self.through_merging(self.merger.adapter, round),
            )  # fmt: skip

        table = self.merger.update(private, server, adapt)
        parts, loss = super().train(task, private, payload | {self.table: table}, samples, round)
        after = table + change(parts[self.table])
        keep_table(private, after)
        return parts | {self.table: after - server}, loss

    def scores(self, task: Task, private: ClientState, payload: Payload) -> Tensor:
        """The method's scores with the merged table."""
        payload = payload | {self.table: self.merger.update(private, tensor(payload, self.table))}
        if self.table_view is None:
            return super().scores(task, private, payload)  # type: ignore[safe-super]
        return super().view_scores(task, self.table_view, private, payload)

    @property
    def merges(self) -> bool:
        """That is what it is for."""
        return True

    def mixture(self, task: Task, private: ClientState, payload: Payload) -> Mixture:
        """The own tables and the download."""
        return self.merger.kept_mixture(private, tensor(payload, self.table))

    @property
    def views(self) -> tuple[str, ...]:
        """The method's, and its own way to score, with the table as it was downloaded or tuned."""
        return (*super().views, "unmerged")

    def view_scores(self, task: Task, view: str, private: ClientState, payload: Payload) -> Tensor:
        """Scores without merging."""
        if view == "unmerged":
            return super().scores(task, private, payload)  # type: ignore[safe-super]
        return super().view_scores(task, view, private, payload)


@cache
def merged(kind: type[Recommender]) -> type[Arrows]:
    """The method whose clients merge the downloaded table with their own."""
    if not issubclass(kind, TableMethod):
        raise ConfigError(f"{kind.name} downloads no item table, so there is nothing to merge; leave merging out.")
    config = create_model(f"Merged{kind.Config.__name__}", __base__=(kind.Config, MergeSettings))
    return type(
        f"Merged{kind.__name__}", (MergedMethod, kind), {"Config": config, "base": kind, "__doc__": kind.__doc__}
    )


def _rebuilt(kind: type[Recommender], config: dict[str, Any]) -> Recommender:
    made = merged(kind)
    return made(made.configure(config))
