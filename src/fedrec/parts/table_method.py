"""Methods that download one item table, train its touched rows beside private parameters, and upload the changes.

This is the shape elastic merging plugs into (``fedrec.parts.merged_method``): such a method names its table, its private
parameters and its loss, and nothing else is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from torch import Tensor

from fedrec.federation.config import LearnedConfig
from fedrec.federation.method import Method, SumMethod
from fedrec.federation.payload import Payload, RowUpdate, State, Upload, tensor
from fedrec.federation.store import ClientState
from fedrec.federation.task import Task
from fedrec.federation.total import Total
from fedrec.local.fit import Batch, Params, Schedule, Step, take_rows
from fedrec.local.problem import LocalProblem, LossOnly
from fedrec.parts.aggregation import (
    NetworkRule,
    Rule,
    add_mean,
    add_rows,
    noise_notes,
    noise_problem,
    step_mean,
    step_rows,
)
from fedrec.parts.scorers import broadcast
from fedrec.sampling.samples import Samples

Fit = Callable[[LocalProblem, Params, Samples, Schedule, Sequence[Step]], Tensor]
"""Trains parameters, of which ``block`` holds the touched rows, in place; ``LocalProblem.train`` is one."""


class TableMethod(Method):
    """A method with one downloaded item table."""

    Config = LearnedConfig
    config: LearnedConfig
    table: ClassVar[str] = "items"
    """Name of the table in the server's state, the download and the upload."""
    private_names: ClassVar[tuple[str, ...]] = ("user",)
    """Private state that is trained beside the rows."""
    row_names: ClassVar[tuple[str, ...]] = ()
    """Those of ``private_params`` that hold a row for each touched one [c, R, d], as the block does."""
    table_view: ClassVar[str | None] = None
    """The view that scores with the downloaded table, of methods whose ``scores`` may use another one."""
    shared_names: tuple[str, ...] = ()
    """Parameters of the download beside the table; trained with the rows, and their changes uploaded."""

    @property
    def table_dim(self) -> int:
        """Columns of the table."""
        return self.config.dim

    def problem(self, round: int) -> LocalProblem:
        """What clients train in a round; ``loss`` by autograd unless a method names a problem that is compiled."""
        return LossOnly(self.loss)

    def loss(self, params: Params, batch: Batch) -> Tensor:
        """Mean loss per client [c] from the private parameters and ``block``, the touched rows."""
        raise NotImplementedError(f"{type(self).__name__} needs a loss, or a problem that has one")

    def data_problem(self, round: int) -> LocalProblem:
        """What of it depends on the data: the problem without penalties on parameters."""
        return self.problem(round)

    def server_state(self, task: Task) -> State:
        """Item table N(0, init_std^2)."""
        return {self.table: task.item_table(self.table_dim, self.config.init_std)}

    def broadcast(self, task: Task, server: State, clients: Tensor) -> Payload:
        """The item table and what else is shared."""
        return {name: broadcast(server[name], len(clients)) for name in (self.table, *self.shared_names)}

    def private_params(self, private: ClientState, samples: Samples) -> Params:
        """Copies of what ``loss`` takes beside the block."""
        return {name: private[name].clone() for name in self.private_names}

    def steps(self, samples: Samples, round: int) -> Sequence[Step]:
        """Optimiser steps per batch; one joint step on everything unless a method says otherwise."""
        return [Step((*self.private_names, *self.shared_names, "block"), self.config.lr, self.config.optimizer)]

    def train(
        self, task: Task, private: ClientState, payload: Payload, samples: Samples, round: int
    ) -> tuple[Payload, Tensor]:
        """Download, train, upload."""
        return self.train_by(LocalProblem.train, task, private, payload, samples, round)

    def train_by(
        self, fit: Fit, task: Task, private: ClientState, payload: Payload, samples: Samples, round: int
    ) -> tuple[Payload, Tensor]:
        """Train touched rows, shared and private parameters together by ``fit``, upload changes of rows and shared."""
        table = tensor(payload, self.table)
        block = take_rows(table, samples)
        start = block.clone()
        params = self.private_params(private, samples) | {"block": block}
        params |= {name: tensor(payload, name).clone() for name in self.shared_names}
        loss = fit(self.problem(round), params, samples, self.config.schedule, self.steps(samples, round))
        private.write({name: params[name] for name in self.private_names})
        parts: Payload = {name: params[name] - tensor(payload, name) for name in self.shared_names}
        return {self.table: RowUpdate(samples.rows, samples.row_counts, block - start, table.shape[1])} | parts, loss

    def first_values(self, task: Task) -> State:
        """The table and what else is shared before the first round: functions of the seed, known to everybody."""
        server = self.server_state(task)
        return {name: server[name] for name in (self.table, *self.shared_names)}


class AveragedTableMethod(TableMethod, SumMethod):
    """A method whose server averages the item table and what else is shared."""

    @property
    def rule(self) -> Rule:
        """How row changes are combined."""
        return "touched"

    @property
    def network_rule(self) -> NetworkRule:
        """How clients are weighted in the mean of what is shared beside the table."""
        return "size"

    def privacy_problem(self) -> str | None:
        """Noise must not be the weight of a row."""
        return noise_problem(self.rule)

    def privacy_notes(self) -> tuple[str, ...]:
        """Noise lies on every row."""
        return noise_notes(self.rule)

    def contribute(self, task: Task, upload: Upload, total: Total) -> None:
        """Weighted changes, and the weights."""
        add_rows(total, upload, self.table, self.rule)
        for name in self.shared_names:
            if name in upload.parts:  # clients that merge may keep theirs
                add_mean(total, upload, name, self.network_rule)

    def step(self, task: Task, server: State, total: Total, round: int) -> State:
        """The table by its rule, everything else by FedAvg."""
        shared = {name: step_mean(server[name], total, name) for name in self.shared_names}
        return server | shared | {self.table: step_rows(server[self.table], total, self.table, self.rule)}
