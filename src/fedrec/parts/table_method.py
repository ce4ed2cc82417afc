"""Methods that download one item table, train its touched rows beside private parameters, and upload the changes.

This is the shape elastic merging plugs into (``fedrec.parts.plugin``): such a method names its table, its private
parameters and its loss, and nothing else is needed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from fedrec.federation.method import Method
from fedrec.federation.payload import Payload, RowUpdate, tensor
from fedrec.federation.store import ClientState
from fedrec.local.fit import Batch, Params, Step, fit, lookup, take_rows
from fedrec.parts.merging import merged_rows
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

    @abstractmethod
    def loss(self, params: Params, batch: Batch) -> Tensor:
        """Mean loss per client [c] from the private parameters and ``block``, the touched rows."""

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
        return fit(
            params,
            self.loss,
            samples,
            epochs=self.config.epochs,
            batch_size=self.config.batch_size,
            steps=self.steps(samples, round),
        )

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
        self,
        theta: Tensor,
        private: Params,
        local: Tensor,
        server: Tensor,
        samples: Samples,
        *,
        widths: Sequence[int],
        epochs: int,
        lr: float,
        pool: tuple[Tensor, Tensor] | None,
    ) -> None:
        """Train merging adapters through this method's own loss on merged rows (Eq. 11 of FedEM); nothing else moves."""
        params = private | {"adapter": theta, "local": local, "server": server}
        if pool is not None:
            params |= {"pool_local": pool[0], "pool_server": pool[1]}

        def loss(params: Params, batch: Batch) -> Tensor:
            rows = merged_rows(
                params, widths, lookup(params["local"], batch.slots), lookup(params["server"], batch.slots)
            )
            # The merged rows of the batch take the place of the block, each sample pointing to its own.
            own = torch.arange(rows.shape[1], device=rows.device).expand(len(rows), -1)
            rowwise = {name: lookup(params[name], batch.slots) for name in self.row_names}
            return self.loss(params | rowwise | {"block": rows}, replace(batch, slots=own))

        fit(params, loss, samples, epochs=epochs, batch_size=self.config.batch_size, steps=[Step(("adapter",), lr)])
