"""Methods that download one item table, train its touched rows beside private parameters, and upload the changes.

This is the shape elastic merging plugs into (``fedrec.parts.plugin``): such a method names its table, its private
parameters and its loss, and nothing else is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from torch import Tensor

from fedrec.federation.local import Batch, Params, Step, fit, take_rows
from fedrec.federation.method import Method
from fedrec.federation.payload import Payload, RowUpdate, tensor
from fedrec.federation.samples import Samples
from fedrec.federation.store import ClientState


class TableMethod(Method):
    """A method with one downloaded item table."""

    table: ClassVar[str] = "items"
    """Name of the table in the download and of its row changes in the upload."""
    private_names: ClassVar[tuple[str, ...]] = ("user",)
    """Private state that is trained beside the rows."""
    loss: ClassVar[Callable[[Params, Batch], Tensor]]
    """Mean loss per client from the private parameters and ``block``, the touched rows."""

    def steps(self, samples: Samples, round: int) -> Sequence[Step]:
        """Optimiser steps per batch; one joint step on everything unless a method says otherwise."""
        return [Step((*self.private_names, "block"), self.config.lr, self.config.optimizer)]

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

    def train(
        self, clients: ClientState, payload: Payload, samples: Samples, round: int
    ) -> tuple[Payload, Tensor]:
        """Download, train touched rows and private parameters together, upload the rows' changes."""
        table = tensor(payload, self.table)
        block = take_rows(table, samples)
        start = block.clone()
        params = {name: clients[name].clone() for name in self.private_names} | {"block": block}
        loss = self.fit(params, samples, round)
        clients.write({name: params[name] for name in self.private_names})
        return {self.table: RowUpdate(samples.rows, samples.row_counts, block - start, table.shape[1])}, loss
