"""Low-rank item updates: rows are ``base + low @ B`` with a projection B [r, d] that is fixed and the same for all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from fedrec.compute.dispatch import Kind
from fedrec.local.fit import Batch, Params, Step, lookup
from fedrec.local.problem import LocalProblem


@dataclass(frozen=True, eq=False)
class LowRank(LocalProblem):
    """Matrix factorisation: ``user`` [c, d] and factors ``low`` [c, R, r] move, ``base`` [c, R, d] does not.

    The loss is the batch's mean BCE plus ``l2`` times the mean of ||row||^2 + ||user||^2, which is not reported;
    gradients of ``low`` are multiplied by sqrt(r/d), and with ``per_row`` each row's is the mean over its own
    samples of the batch.
    """

    projection: Tensor
    per_row: bool
    l2: float

    def loss(self, params: Params, batch: Batch) -> Tensor:
        """Each client's mean binary cross-entropy; the L2 term is in the gradient, but not in the value."""
        shrink = math.sqrt(self.projection.shape[0] / self.projection.shape[1])
        moving = lookup(params["low"], batch.slots)
        weight = _row_weights(batch, params["low"].shape[1]) * shrink if self.per_row else shrink
        if moving.requires_grad:
            moving.register_hook(lambda gradient: gradient * weight)  # type: ignore[no-untyped-call]
        rows = lookup(params["base"], batch.slots) + moving @ self.projection
        bce = batch.bce((rows @ params["user"].unsqueeze(2)).squeeze(2))
        norms = rows.square().sum(2) + params["user"].square().sum(1, keepdim=True)
        penalty = self.l2 * batch.mean(norms)
        return bce + (penalty - penalty.detach())

    def suits(self, kind: Kind, params: Params, steps: Sequence[Step]) -> bool:
        """The twin takes one joint step."""
        return len(steps) == 1 and steps[0].is_plain("user", "low")


def _row_weights(batch: Batch, rows: int) -> Tensor:
    """[c, b, 1]: batch size over the number of samples of the same row, which turns shares of a mean into row means."""
    valid = batch.mask.float()
    slots = batch.slots.long()
    seen = valid.new_zeros(len(valid), rows).scatter_add_(1, slots, valid)
    return (valid.sum(1, keepdim=True) / seen.gather(1, slots).clamp(min=1)).unsqueeze(2)
