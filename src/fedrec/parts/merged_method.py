"""Elastic merging for any method that downloads an item table (Table 3 of FedEM).

Instead of overwriting its table with the download, a client merges both, trains from the result, keeps it, and uploads
it. Everything else stays the method's own: this subclass of it changes the download on the way in and the upload on the
way out, and trains the adapters through the method's own loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar, Literal

import torch
from pydantic import create_model, model_validator
from torch import Tensor

from fedrec.errors import ConfigError
from fedrec.federation.arrows import Arrows
from fedrec.federation.config import MethodConfig
from fedrec.federation.mixture import Mixture
from fedrec.federation.payload import Payload, RowUpdate, State, change, tensor
from fedrec.federation.recommender import Recommender
from fedrec.federation.store import ClientState
from fedrec.federation.task import Task
from fedrec.local.fit import Params, Schedule, Step, take_rows
from fedrec.local.problem import LocalProblem
from fedrec.parts.merger import ADAPTER, OWN, STARTED, Merger, empty_table, keep_table, look_through, own_table
from fedrec.parts.scorers import broadcast
from fedrec.parts.served import ServedSettings, uploaders
from fedrec.parts.table_method import Fit, TableMethod
from fedrec.sampling.samples import Samples

KEPT = "own_"
"""Before the name of what a client keeps of what the method shares beside its table."""
STREAM = 77
"""Of the initial adapters: apart from whatever a method draws for itself."""


VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {},
    "code": {
        "agg_ratio": 0.1,
        "adapter_schedule": "interleaved",
        "train_through_adapter": True,
        "early_stop_tol": 1e-4,
    },
}
"""The plug-in as the paper describes it, and methods in the engine of the released code."""


class PluginSettings(ServedSettings):
    """How clients of a method that does not merge by itself do."""

    merge_variant: Literal["paper", "code"] = "paper"
    """Sets ``agg_ratio``, ``adapter_schedule``, ``train_through_adapter`` and ``early_stop_tol``; any can be overridden."""
    score: Literal["merged", "own"] = "merged"
    """Clients score with their table merged with the newest download, or with the one they trained."""
    keep_shared: bool = False
    """What the method shares beside the table, such as a network, stays with each client and is not sent."""
    adapter_loss: Literal["method", "data"] = "method"
    """Adapters are trained on the method's whole loss, or on that of the data alone, without penalties on parameters."""

    @model_validator(mode="before")
    @classmethod
    def _fill_merge_variant(cls, values: dict[str, Any]) -> dict[str, Any]:
        variant = values.get("merge_variant", "paper")
        return (VARIANTS.get(variant, {}) if isinstance(variant, str) else {}) | values


class MergedMethod(TableMethod):
    """The part of a merged method that merges; ``merged`` puts it in front of a method."""

    base: ClassVar[type[Recommender]]
    """The method that is merged."""

    def __init__(self, config: MethodConfig | None = None, **options: Any) -> None:
        """The name says how clients merge."""
        super().__init__(config, **options)
        self.name = f"{type(self).name}+{self.merge_settings.merge}"
        if self.merge_settings.keep_shared and not self.shared_names:
            raise ConfigError(f"{self.name} shares nothing beside its table; leave keep_shared out.")
        if self._own_train and self.merge_settings.looks_through:
            raise ConfigError(
                f"{self.name} trains in a way of its own, which cannot look through adapters; give it train_by instead "
                "of train, or set adapter_schedule=before and train_through_adapter=false."
            )

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies are made anew: the class has no place of its own to be found at."""
        return (_rebuilt, (self.base, self.describe_config()), {"rounds": self.rounds})

    @property
    def merge_settings(self) -> PluginSettings:
        """The settings of merging among the method's."""
        assert isinstance(self.config, PluginSettings)
        return self.config

    @property
    def merger(self) -> Merger:
        """Merging of the method's table."""
        return Merger(self.merge_settings, self.table_dim)

    @property
    def serves_some(self) -> bool:
        """As in FedEM's released code only clients that were aggregated in the last round have a table of the server's."""
        return self.merge_settings.agg_ratio < 1 or self.merge_settings.looks_through

    @property
    def _own_train(self) -> bool:
        """Whether the method has a ``train`` that does not train by what it is given."""
        return getattr(self.base, "train", None) is not TableMethod.train

    @property
    def sent_names(self) -> tuple[str, ...]:
        """What is shared beside the table and sent."""
        return () if self.merge_settings.keep_shared else self.shared_names

    @property
    def kept_names(self) -> tuple[str, ...]:
        """What is shared beside the table and of which clients keep their own."""
        return self.shared_names if self.merge_settings.keep_shared or self.serves_some else ()

    def server_state(self, task: Task) -> State:
        """The method's, and, where only some are served, who is and who uploads in the coming round."""
        state = super().server_state(task)
        if self.kept_names and not set(self.kept_names) <= set(state):
            missing = ", ".join(sorted(set(self.kept_names) - set(state)))
            raise ConfigError(
                f"{self.name}: clients cannot keep what the server holds for each of them ({missing}); set "
                "merge_variant=paper without agg_ratio, adapter_schedule, train_through_adapter and keep_shared."
            )
        if not self.serves_some:
            return state
        nobody = torch.zeros(task.n_clients, dtype=torch.bool)
        return state | {"served": nobody, "uploads": self._uploaders(task, state, 0)}

    def _uploaders(self, task: Task, server: State, round: int) -> Tensor:
        return uploaders(task, self.participants(task, server, round), self.merge_settings.agg_ratio, round)

    def client_state(self, task: Task, clients: Tensor) -> State:
        """The method's, and an own table and adapter, and what else of the download is kept."""
        state = super().client_state(task, clients) | empty_table(task, len(clients), self.table_dim)  # type: ignore[safe-super]
        if self.merger.adapts:
            state[ADAPTER] = self.merger.draw(task, stream=STREAM).expand(len(clients), -1)
        if self.serves_some or self.kept_names:
            first = {name: broadcast(value, len(clients)) for name, value in self.first_values(task).items()}
            state |= {KEPT + name: first[name] for name in self.kept_names}
            if self.serves_some:
                state |= {OWN: first[self.table], STARTED: torch.ones_like(state[STARTED])}
        return state

    def kinds(self, task: Task, server: State, clients: Tensor) -> Tensor | None:
        """Clients with and without a table of the server's, that upload or do not."""
        if not self.serves_some:
            return super().kinds(task, server, clients)
        who = clients.cpu()
        return 2 * server["served"][who].long() + server["uploads"][who].long()

    def broadcast(self, task: Task, server: State, clients: Tensor) -> Payload:
        """The method's download, without what clients keep; who is not served learns only whether it uploads."""
        if not self.serves_some:
            return self._without_kept(super().broadcast(task, server, clients))
        who = clients.cpu()
        served = len(who) > 0 and bool(server["served"][who[0]])
        payload = self._without_kept(super().broadcast(task, server, clients)) if served else {}
        return payload | {"upload": server["uploads"][who]}

    def _without_kept(self, payload: Payload) -> Payload:
        return {
            name: part for name, part in payload.items() if name in self.sent_names or name not in self.shared_names
        }

    def _whole(self, private: ClientState, payload: Payload) -> Payload:
        """The download with what the client keeps in the place of what did not come."""
        return {name: private[KEPT + name] for name in self.kept_names} | payload

    def train(
        self, task: Task, private: ClientState, payload: Payload, samples: Samples, round: int
    ) -> tuple[Payload, Tensor]:
        """Adapter phase (Eq. 11), merge (Eq. 10), then the method's own local training from the merged table."""
        whole = self._whole(private, payload)
        if self.table not in payload:
            table, fit = private[OWN], self._fit(None, None, round)
        elif self.merge_settings.looks_through:
            server, theta = tensor(payload, self.table), private[ADAPTER].clone()
            if self.merge_settings.adapter_schedule == "before":
                self._adapt(theta, own_table(private, server), server, private, whole, samples, round)
            table = self.merger.merged(own_table(private, server), server, theta)
            fit = self._fit(theta, take_rows(server, samples), round)
        else:
            server = tensor(payload, self.table)
            table = self.merger.update(
                private, server, lambda theta, local: self._adapt(theta, local, server, private, whole, samples, round)
            )
            fit = self._fit(None, None, round)
        start = whole | {self.table: table}
        if self._own_train:
            parts, loss = super().train(task, private, start, samples, round)
        else:
            parts, loss = super().train_by(fit, task, private, start, samples, round)
        if self.merge_settings.looks_through and self.table in payload:
            private[ADAPTER] = theta
        return self._upload(task, private, payload, whole, parts, table, samples), loss

    def _upload(
        self, task: Task, private: ClientState, payload: Payload, whole: Payload, parts: Payload, table: Tensor,
        samples: Samples,
    ) -> Payload:  # fmt: skip
        """Keep what became of ``table`` and of the rest; what is sent are changes since what the server knows.

        That is the download, or, where only some are served, the first table of all.
        """
        now = {name: tensor(whole, name) + tensor(parts, name) for name in self.kept_names}
        private.write({KEPT + name: value for name, value in now.items()})
        silent = self.serves_some and not bool(tensor(payload, "upload")[0])
        part, of_download = parts[self.table], self.table in payload
        if silent and not of_download and type(part) is RowUpdate and part.rows is samples.rows:
            private.put(OWN, samples, take_rows(table, samples) + part.values)  # the other rows stay what they are
            return {}
        fresh = table if of_download else table.clone()  # a merged table is of this round, and nobody else looks at it
        after = part.move(fresh) if type(part) is RowUpdate else table + change(part)
        keep_table(private, after)
        if not self.serves_some:
            rest = {
                name: part for name, part in parts.items() if name in self.sent_names or name not in self.shared_names
            }
            return rest | {self.table: after.sub_(tensor(payload, self.table))}
        if silent:
            return {}
        first = self.first_values(task)
        sent: Payload = {name: now[name] - first[name] for name in self.sent_names}
        return sent | {self.table: after.sub_(first[self.table])}

    def _fit(self, theta: Tensor | None, server: Tensor | None, round: int) -> Fit:
        """Local training: the method's, or through the adapter."""
        s = self.merge_settings

        def fit(
            problem: LocalProblem, params: Params, samples: Samples, schedule: Schedule, steps: Sequence[Step]
        ) -> Tensor:
            schedule = replace(schedule, early_stop_tol=s.early_stop_tol)
            if theta is None or server is None:
                return problem.train(params, samples, schedule, steps)
            first = None
            if s.adapter_schedule == "interleaved":
                other = None if s.adapter_loss == "method" else self._seen_by_adapters(round).loss
                first = Step((ADAPTER,), s.adapter_lr, loss=other)
            return self.merger.train_through(
                theta, server, problem, params, samples, schedule, steps,
                first=first, through=s.train_through_adapter, row_names=self.row_names,
            )  # fmt: skip

        return fit

    def _seen_by_adapters(self, round: int) -> LocalProblem:
        """What adapters are trained on where they have a phase of their own, or a loss."""
        problem = self.problem(round) if self.merge_settings.adapter_loss == "method" else self.data_problem(round)
        return look_through(self.merger.adapter, problem, self.row_names)

    def _adapt(
        self, theta: Tensor, local: Tensor, server: Tensor, private: ClientState, whole: Payload, samples: Samples,
        round: int,
    ) -> None:  # fmt: skip
        """The adapter phase."""
        s, params = self.merge_settings, {name: tensor(whole, name) for name in self.shared_names}
        params |= self.private_params(private, samples)
        self.merger.adapt(
            theta, params, (take_rows(local, samples), take_rows(server, samples)), samples,
            Schedule(s.adapter_epochs, self.config.batch_size), s.adapter_lr,
            tables=lambda: (local, server), through=self._seen_by_adapters(round),
        )  # fmt: skip

    def step(self, task: Task, server: State, arrived: Any, round: int) -> State:
        """The method's; where only some are served, what they sent is added to the first table of all."""
        if not self.serves_some:
            return super().step(task, server, arrived, round)  # type: ignore[misc, no-any-return]
        new, served = server, torch.zeros_like(server["served"])
        if arrived:
            first = self.first_values(task)
            known = {name: first[name] for name in (self.table, *self.sent_names)}
            new = server | super().step(task, server | known, arrived, round)  # type: ignore[misc]
            served = server["uploads"]
        return new | {"served": served, "uploads": self._uploaders(task, new, round + 1)}

    def scores(self, task: Task, private: ClientState, payload: Payload) -> Tensor:
        """The method's scores with the merged table, or the own one."""
        if self.table not in payload:
            table = private[OWN]
        elif self.merge_settings.score == "own":
            table = own_table(private, tensor(payload, self.table))
        else:
            table = self.merger.update(private, tensor(payload, self.table))
        return self._scores_with(task, private, payload, table)

    def _scores_with(self, task: Task, private: ClientState, payload: Payload, table: Tensor) -> Tensor:
        payload = self._whole(private, payload) | {self.table: table}
        if self.table_view is None:
            return super().scores(task, private, payload)  # type: ignore[safe-super]
        return super().view_scores(task, self.table_view, private, payload)

    @property
    def merges(self) -> bool:
        """That is what it is for."""
        return True

    def mixture(self, task: Task, private: ClientState, payload: Payload) -> Mixture:
        """The own tables and the download; clients that are not served have their own."""
        if self.table not in payload:
            own = private[OWN]
            return Mixture(own, own, own.new_zeros(own.shape[:2]))
        return self.merger.kept_mixture(private, tensor(payload, self.table))

    @property
    def views(self) -> tuple[str, ...]:
        """The method's, and its own way to score, with the table as it was downloaded or tuned."""
        return (*super().views, "unmerged")

    def view_scores(self, task: Task, view: str, private: ClientState, payload: Payload) -> Tensor:
        """Scores without merging, of clients that are not served with their own table."""
        if self.table not in payload:
            payload = payload | {self.table: private[OWN]}
        payload = self._whole(private, payload)
        if view == "unmerged":
            return super().scores(task, private, payload)  # type: ignore[safe-super]
        return super().view_scores(task, view, private, payload)


@cache
def merged(kind: type[Recommender]) -> type[Arrows]:
    """The method whose clients merge the downloaded table with their own."""
    if not issubclass(kind, TableMethod):
        raise ConfigError(f"{kind.name} downloads no item table, so there is nothing to merge; leave merging out.")
    config = create_model(f"Merged{kind.Config.__name__}", __base__=(kind.Config, PluginSettings))
    telling = (*kind.telling, "merge_variant")
    own = {"Config": config, "base": kind, "telling": telling, "__doc__": kind.__doc__}
    return type(f"Merged{kind.__name__}", (MergedMethod, kind), own)


def _rebuilt(kind: type[Recommender], config: dict[str, Any]) -> Recommender:
    made = merged(kind)
    return made(made.configure(config))
