"""Settings of the linear model of order, and what they make of sums: weights, and scores from them."""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedrec.federation.payload import State
from fedrec.parts.order import Decay
from fedrec.parts.ordered_weights import weight_rows
from fedrec.parts.published import WeightsConfig, no_weights, published, weighted_parts, weighted_scores
from fedrec.parts.recent import recency

ORDERED = "ordered"
SUMS = 16


def per_entry(config: WeightsConfig) -> int:
    """Bytes of memory for every pair of items: two sums that become all else, and weights that are not cut."""
    return SUMS + (4 if config.keep is None else 0)


class SlistConfig(WeightsConfig):
    """Settings of SLIST and FedSlist; none as a decay is an infinite one: distance does not count."""

    delta_p: float | None = Field(3.0, gt=0)
    """How fast the past of a moment fades, in items."""
    delta_f: float | None = Field(1.0, gt=0)
    """How fast the future of a moment fades."""
    a: float = Field(0.3, ge=0)
    """Weight of having both items, whatever their order."""
    lam: float = Field(100.0, gt=0)
    """L2 penalty lambda."""
    delta_q: float | None = Field(5.0, gt=0)
    """How fast the history fades that a client scores with."""
    order: Literal["time", "none"] = "time"
    """none: only x x' with weight 1 and an unweighted history, which is EASE; so are data without time."""

    @property
    def uses_order(self) -> bool:
        """Unless it is told not to."""
        return self.order == "time"

    def decay(self, timed: bool, clip: float | None = None) -> Decay:
        """What a client adds."""
        return Decay(self.delta_p, self.delta_f, self.a, timed and self.order == "time", clip)

    def empty(self, n_items: int, device: torch.device) -> State:
        """Published weights before there are any, and whether they know of order."""
        return {ORDERED: torch.zeros(1, dtype=torch.bool, device=device)} | no_weights(self, n_items, device)

    def solved(self, past: Tensor, after: Tensor, timed: bool) -> State:
        """What the server publishes, from A (upper triangle) and R in units of 2^-16, or both floating and whole; overwrites them."""
        found = published(self, weight_rows(past, after, self.lam), len(past), past.device)
        return found | {ORDERED: torch.tensor([timed and self.order == "time"], device=past.device)}

    def about(self, model: State) -> dict[str, Any]:
        """What the result of a run says of the model."""
        if bool(model[ORDERED]):
            return {"order": "time"}
        why = "the data have no time" if self.order == "time" else "by its settings"
        return {"order": f"none: {why}, so this is EASE with the same lam"}

    def scores(self, model: State, history: Tensor) -> Tensor:
        """q'B of these histories [c, W]."""
        return weighted_scores(model, history, self._counts(model, history))

    def parts(self, model: State, history: Tensor, items: Tensor) -> Tensor:
        """What every item of these histories adds to the scores of ``items`` [c, k]: [c, W, k]."""
        return weighted_parts(model, history, self._counts(model, history), items)

    def _counts(self, model: State, history: Tensor) -> Tensor:
        return recency(history, self.delta_q if bool(model[ORDERED]) else None)
