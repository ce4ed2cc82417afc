"""Which round of a federation is reported: the best one by what the sites' sums say. Test values stay sealed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from fedrec.deploy.federation import Federation
from fedrec.deploy.sums import MetricSums
from fedrec.errors import FedrecError
from fedrec.running.history import Means

State = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Best:
    """The selected round so far: its value, its sums and the server's state."""

    round: int
    value: float
    sums: MetricSums
    state: State


class Judge:
    """Asks the sites how well their users are served, and keeps the best round."""

    keeps_state = True

    def __init__(self, federation: Federation) -> None:
        """Nothing is evaluated yet."""
        self.federation = federation
        self.tell: Callable[[int, int], None] = lambda done, total: None
        self.best: Best | None = None
        self.final: MetricSums | None = None
        """Of the newest evaluation."""

    def evaluate(self, done: int) -> dict[str, Means]:
        """Evaluate; what is shown and what selects is the protocol's business."""
        protocol = self.federation.plan.protocol
        self.final, _ = self.federation.evaluate(done)
        shown = {"validation": self.final.means("validation")}
        if protocol.select_on == "test":
            shown["test"] = self.final.means("test")
        value = shown[protocol.select_on][protocol.select_ranking][protocol.select_metric]
        if np.isnan(value):
            raise FedrecError(
                f"no site told of {protocol.select_on} values under '{protocol.name}', so no round can be chosen; sites do "
                "not tell of groups that are too small."
            )
        if self.best is None or value > self.best.value or (value == self.best.value and protocol.select_later):
            state = {name: tensor.clone() for name, tensor in self.federation.state().items()}
            self.best = Best(done, value, self.final, state)
        return shown

    def conclude(self, rounds: int) -> Best:
        """The selected round after the last one; a run resumed at its end is measured now."""
        if self.best is None or self.final is None:
            self.evaluate(rounds)
        assert self.best is not None
        return self.best
