"""Settings of the linear model of order, and what they make of sums: weights, and scores from them."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from fedrec.federation.payload import State
from fedrec.federation.search import Range, Space
from fedrec.methods.fedslist.projected import projected_parts, projected_scores
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

    space: ClassVar[Space] = {
        "delta_p": Range(1.0, 20.0, log=True),
        "delta_f": Range(0.5, 10.0, log=True),
        "a": Range(0.01, 30.0, log=True),
        "lam": Range(10.0, 20_000.0, log=True),
        "delta_q": Range(1.0, 1000.0, log=True),
    }

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
    keep: int | None = Field(200, ge=1)
    """Publish only so many weights of every item, the largest; none: all of them."""
    bits: Literal[32, 16, 8] = 8
    """Of every kept weight: float32, float16, or int8 with a scale per item; all weights are float32."""
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
        return weighted_scores(model, history, self.counts(model, history))

    def parts(self, model: State, history: Tensor, items: Tensor) -> Tensor:
        """What every item of these histories adds to the scores of ``items`` [c, k]: [c, W, k]."""
        return weighted_parts(model, history, self.counts(model, history), items)

    def counts(self, model: State, history: Tensor) -> Tensor:
        """How much every item of these histories counts."""
        return recency(history, self.delta_q if bool(model[ORDERED]) else None)


class FedSlistConfig(SlistConfig):
    """Settings of FedSlist."""

    epsilon: float | None = Field(None, gt=0)
    """Privacy budget of a client; Gaussian noise on the sum is calibrated to it. None: no noise."""
    delta: float = Field(1e-5, gt=0, lt=1)
    """Failure probability at which epsilon holds."""
    n_max: int | None = Field(None, ge=1)
    """Newest items a client contributes at most; it still scores with its whole history."""
    rank: int | None = Field(None, ge=1)
    """Send and publish sums in so many directions only, which rounds before look for; ``keep`` and ``bits`` then mean nothing."""
    passes: int = Field(2, ge=1)
    """Rounds that look for directions, each starting from those of the one before."""
    clip: float | None = Field(None, gt=0)
    """Largest L2 norm of a client's two matrices together; none: that of ``n_max`` items."""

    @model_validator(mode="after")
    def _bounded(self) -> FedSlistConfig:
        if self.epsilon is not None and self.n_max is None:
            raise ValueError("epsilon needs a bound on what one client contributes; set n_max, for example 50")
        if self.epsilon is not None and self.rank is not None:
            raise ValueError("noise is for whole sums; set epsilon or rank")
        return self

    def empty(self, n_items: int, device: torch.device) -> State:
        """Nothing published yet."""
        if self.rank is None:
            return super().empty(n_items, device)
        nothing = {"basis": torch.zeros(n_items, 0, device=device), "core": torch.zeros(0, 0, device=device)}
        return {ORDERED: torch.zeros(1, dtype=torch.bool, device=device)} | nothing

    def scores(self, model: State, history: Tensor) -> Tensor:
        """q'B of these histories [c, W]."""
        if self.rank is None:
            return super().scores(model, history)
        return projected_scores(model, history, self.counts(model, history))

    def parts(self, model: State, history: Tensor, items: Tensor) -> Tensor:
        """What every item of these histories adds to the scores of ``items`` [c, k]: [c, W, k]."""
        if self.rank is None:
            return super().parts(model, history, items)
        return projected_parts(model, history, self.counts(model, history), items)
