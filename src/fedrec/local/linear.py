"""Linear score units: the logit of a sample is ``weights . row + bias``, for one table of rows or the sum of two.

A unit is one flat tensor [c, d + 1], the weights and then the bias; without a bias it is [c, d].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from fedrec.compute.dispatch import Kind
from fedrec.local.fit import Batch, Params, Step, lookup
from fedrec.local.problem import LocalProblem


def _logits(unit: Tensor, rows: Tensor) -> Tensor:
    d = rows.shape[2]
    return (rows @ unit[:, :d, None]).squeeze(2) + unit[:, d:].sum(1, keepdim=True)


@dataclass(frozen=True)
class LinearUnit(LocalProblem):
    """PFedRec: mean binary cross-entropy of ``unit`` on the touched rows ``block`` [c, R, d]."""

    def loss(self, params: Params, batch: Batch) -> Tensor:
        """Each client's mean binary cross-entropy."""
        return batch.bce(_logits(params["unit"], lookup(params["block"], batch.slots)))

    def suits(self, kind: Kind, params: Params, steps: Sequence[Step]) -> bool:
        """The twin takes a gradient step on the unit, then one on the rows, and wants a bias."""
        biased = params["unit"].shape[1] > params["block"].shape[2]
        two = len(steps) == 2 and steps[0].is_plain("unit") and steps[1].is_plain("block")
        return biased and two and all(step.optimizer == "sgd" for step in steps)


@dataclass(frozen=True)
class AdditiveTables(LocalProblem):
    """FedRAP: ``unit`` on the sum of own rows ``personal`` (D) and common rows ``block`` (C), both [c, R, d].

    ``-apart * mean (D - C)^2 + l1 * mean |C| + l2 * mean C^2`` over the batch's rows is added to the cross-entropy.
    ``shrunk`` [c] has no gradient and feels weight decay alone: it tells what is left of a row that no sample touches.
    """

    apart: float
    l1: float
    l2: float

    def loss(self, params: Params, batch: Batch) -> Tensor:
        """Each client's mean binary cross-entropy and the three terms."""
        own, common = lookup(params["personal"], batch.slots), lookup(params["block"], batch.slots)
        value = batch.bce(_logits(params["unit"], own + common)) + 0 * params["shrunk"]
        value = value - self.apart * batch.mean((own - common).square().mean(2))
        return value + self.l1 * batch.mean(common.abs().mean(2)) + self.l2 * batch.mean(common.square().mean(2))

    def suits(self, kind: Kind, params: Params, steps: Sequence[Step]) -> bool:
        """The twin takes one joint gradient step, with decay, at one rate for all rows."""
        if len(steps) != 1 or steps[0].optimizer != "sgd" or steps[0].loss is not None:
            return False
        rates = steps[0].rates
        return set(rates) == {"unit", "personal", "block", "shrunk"} and (
            rates["personal"] == rates["block"] == rates["shrunk"]
        )
