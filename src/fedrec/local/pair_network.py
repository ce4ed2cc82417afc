"""Neural matching: the logit of a sample is a small network's output for a user vector and an item row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul

import torch
from torch import Tensor

from fedrec.compute.dispatch import Kind
from fedrec.local.fit import Batch, Params, Step, lookup
from fedrec.local.mlp import FlatMLP
from fedrec.local.problem import LocalProblem


@dataclass(frozen=True)
class PairNetwork(LocalProblem):
    """Mean binary cross-entropy of ``user`` [c, D] beside the touched rows ``block`` [c, R, D] under ``network`` [c, P].

    The first ``product`` columns of both are multiplied one by one; the others go, side by side, through the hidden layers. A
    linear output layer reads the products and the last hidden units. In the flat network lie the hidden layers, the output's
    weights of the products, those of the units, and its bias.
    """

    widths: tuple[int, ...]
    """Layers up to the last hidden units, inputs of both first; none: there are products alone."""
    product: int = 0
    decay: float = 0.0
    """Half of it times the network's squared norm is added to the loss."""

    @property
    def tower(self) -> FlatMLP | None:
        """The hidden layers."""
        return FlatMLP(self.widths) if self.widths else None

    @property
    def pieces(self) -> list[int]:
        """Lengths in the flat network."""
        hidden = self.widths[-1] if self.widths else 0
        return [self.tower.size if self.tower else 0, self.product, hidden, 1]

    def logits(self, user: Tensor, network: Tensor, rows: Tensor) -> Tensor:
        """Logits [c, b] of ``rows`` [c, b, D], differentiable."""
        layers, of_product, of_units, bias = torch.split(network, self.pieces, dim=1)
        columns = [self.product, user.shape[1] - self.product]
        user_product, user_tower = torch.split(user, columns, dim=1)
        rows_product, rows_tower = torch.split(rows, columns, dim=2)
        total: Tensor = bias
        if self.product:  # h . (p (.) q) = (h (.) p) . q
            total = total + (rows_product @ (of_product * user_product)[:, :, None]).squeeze(2)
        if self.tower is not None:
            units = self.tower.paired(layers, user_tower, rows_tower).relu()
            total = total + (units @ of_units[:, :, None]).squeeze(2)
        return total

    def loss(self, params: Params, batch: Batch) -> Tensor:
        """Each client's mean binary cross-entropy, and the decay of the network."""
        network = params["network"]
        value = batch.bce(self.logits(params["user"], network, lookup(params["block"], batch.slots)))
        return value + self.decay / 2 * network.square().sum(1) if self.decay else value

    def suits(self, kind: Kind, params: Params, steps: Sequence[Step]) -> bool:
        """The twin takes one joint step of Adam, and wants hidden layers."""
        one = len(steps) == 1 and steps[0].optimizer == "adam" and steps[0].is_plain("user", "network", "block")
        return one and self.compiles(kind)

    def compiles(self, kind: Kind) -> bool:
        """Whether compiled code can hold these layers: it wants hidden ones, on a GPU of few weights each."""
        if kind == "cpu" or len(self.widths) < 2:
            return len(self.widths) > 1
        rows = self.widths[0] // 2 + self.product
        return rows <= 64 and max(map(mul, map(_held, (rows, *self.widths[1:])), map(_held, self.widths[1:]))) <= 2048


def _held(units: int) -> int:
    """The power of two that holds so many units in a kernel for GPUs."""
    return max(16, 1 << (units - 1).bit_length())
