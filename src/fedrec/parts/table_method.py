"""Methods that download one item table, train its touched rows beside private parameters, and upload the changes.

This is the shape elastic merging plugs into (``fedrec.parts.plugin``): such a method names its table, its private
parameters and its loss, and nothing else is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from fedrec.federation.method import Method
from fedrec.federation.payload import Payload, RowUpdate, tensor
from fedrec.federation.store import ClientState
from fedrec.local.adapters import MergingAdapter
from fedrec.local.fit import Batch, Params, Schedule, Step, fit, lookup, take_rows
from fedrec.local.problem import LocalProblem, LossOnly
from fedrec.sampling.samples import Samples


class TableMethod(Method):
    """A method with one downloaded item table."""

    table: ClassVar[str] = "items"
    """Name of the table in the download and of its row changes in the upload."""
    private_names: ClassVar[tuple[str, ...]] = ("user",)
    """Private state that is trained beside the rows."""
    row_names: ClassVar[tuple[str, ...]] = ()
    """Those of ``private_params`` that hold a row for each touched one [c, R, d], as the block does."""
    shared_names: ClassVar[tuple[str, ...]] = ()
    """Parameters of the download beside the table; trained with the rows, and their changes uploaded."""

    def loss(self, params: Params, batch: Batch) -> Tensor:
        """Mean loss per client [c] from the private parameters and ``block``, the touched rows."""
        raise NotImplementedError(f"{type(self).__name__} needs a loss, or a problem that has one")

    def problem(self, round: int) -> LocalProblem:
        """What clients train in a round; ``loss`` by autograd unless a method names a problem that is compiled."""
        return LossOnly(self.loss)

    @property
    def table_dim(self) -> int:
        """Columns of the table."""
        return int(self.config.dim)

    def private_params(self, clients: ClientState, samples: Samples) -> Params:
        """Copies of what ``loss`` takes beside the block."""
        return {name: clients[name].clone() for name in self.private_names}

    def table_scores(self, clients: ClientState, payload: Payload) -> Tensor:
        """Scores [c, m] with the table in ``payload``, for methods whose ``scores`` may use another one."""
        return self.scores(clients, payload)

    def steps(self, samples: Samples, round: int) -> Sequence[Step]:
        """Optimiser steps per batch; one joint step on everything unless a method says otherwise."""
        return [Step((*self.private_names, *self.shared_names, "block"), self.config.lr, self.config.optimizer)]

    def fit(self, params: Params, samples: Samples, round: int) -> Tensor:
        """Train ``params`` in place; returns the losses [c]."""
        return self.problem(round).train(params, samples, self.config.schedule, self.steps(samples, round))

    def train(self, clients: ClientState, payload: Payload, samples: Samples, round: int) -> tuple[Payload, Tensor]:
        """Download, train touched rows, shared and private parameters together, upload changes of rows and shared."""
        table = tensor(payload, self.table)
        block = take_rows(table, samples)
        start = block.clone()
        params = self.private_params(clients, samples) | {"block": block}
        params |= {name: tensor(payload, name).clone() for name in self.shared_names}
        loss = self.fit(params, samples, round)
        clients.write({name: params[name] for name in self.private_names})
        parts: Payload = {name: params[name] - tensor(payload, name) for name in self.shared_names}
        return {self.table: RowUpdate(samples.rows, samples.row_counts, block - start, table.shape[1])} | parts, loss

    def fit_adapter(
        self, adapter: MergingAdapter, params: Params, samples: Samples, schedule: Schedule, lr: float
    ) -> None:
        """Train merging adapters through this method's own loss on merged rows (Eq. 11 of FedEM); nothing else moves.

        ``params`` holds the adapter's parameters and, beside them, what ``loss`` takes beside the block.
        """
        own_loss = self.problem(samples.round).loss

        def loss(params: Params, batch: Batch) -> Tensor:
            local, server = lookup(params["local"], batch.slots), lookup(params["server"], batch.slots)
            rows = adapter.merged_rows(params, local, server)
            # The merged rows of the batch take the place of the block, each sample pointing to its own.
            own = torch.arange(rows.shape[1], device=rows.device).expand(len(rows), -1)
            rowwise = {name: lookup(params[name], batch.slots) for name in self.row_names}
            return own_loss(params | rowwise | {"block": rows}, replace(batch, slots=own))

        fit(params, loss, samples, schedule, [Step(("adapter",), lr)])
