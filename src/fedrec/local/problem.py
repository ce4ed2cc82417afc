"""Local problems: what clients train on their own data, declared once whatever computes it.

A problem is a small frozen object with its constants and a readable loss, from which ``fit`` trains on any device. Some
have compiled twins that compute the same (``fedrec.local.twins``); ``train`` picks one where it can.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from fedrec.compute import dispatch
from fedrec.local.fit import Batch, Loss, Params, Schedule, Step, fit
from fedrec.local.twins import twin_of
from fedrec.sampling.samples import Samples


class LocalProblem(ABC):
    """What the clients of a cohort minimise, each on its own."""

    @abstractmethod
    def loss(self, params: Params, batch: Batch) -> Tensor:
        """Mean loss of each client's batch [c]."""

    def suits(self, kind: dispatch.Kind, params: Params, steps: Sequence[Step]) -> bool:
        """Whether the compiled twin of this kind, if there is one, computes these parameters and steps."""
        return False

    def train(self, params: Params, samples: Samples, schedule: Schedule, steps: Sequence[Step]) -> Tensor:
        """Train ``params`` [c, ...] in place; returns each client's mean loss over its last epoch."""
        kind = dispatch.compiled_for(*params.values())
        twin = twin_of(self, kind) if kind is not None and self.suits(kind, params, steps) else None
        if twin is None:
            return fit(params, self.loss, samples, schedule, steps)
        # Twins work on whole blocks of memory: strided parameters are trained as copies.
        packed = {name: value.detach().contiguous() for name, value in params.items()}
        losses = twin(self, packed, samples, schedule, steps)
        for name in {name for step in steps for name in step.names}:
            if not params[name].is_contiguous():
                params[name].copy_(packed[name])
        return losses


@dataclass(frozen=True)
class LossOnly(LocalProblem):
    """A problem that is known by its loss."""

    value: Loss

    def loss(self, params: Params, batch: Batch) -> Tensor:
        """That loss."""
        return self.value(params, batch)
