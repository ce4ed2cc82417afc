"""Matrix factorisation: the logit of a sample is ``user . row``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from fedrec.compute.dispatch import Kind
from fedrec.local.fit import Batch, Params, Step, lookup
from fedrec.local.problem import LocalProblem


@dataclass(frozen=True)
class MatrixFactorisation(LocalProblem):
    """Mean binary cross-entropy of user vectors ``user`` [c, d] times the touched rows [c, R, d]."""

    rows: str = "block"  # the parameter that holds the touched rows

    def loss(self, params: Params, batch: Batch) -> Tensor:
        """Each client's mean binary cross-entropy."""
        rows = lookup(params[self.rows], batch.slots)
        return batch.bce((rows @ params["user"].unsqueeze(2)).squeeze(2))

    def suits(self, kind: Kind, params: Params, steps: Sequence[Step]) -> bool:
        """Twins take one joint step."""
        return len(steps) == 1 and steps[0].is_plain("user", self.rows)
