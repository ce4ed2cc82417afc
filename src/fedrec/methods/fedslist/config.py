"""Settings of the linear model of order, and what they make of sums: weights, and scores from them."""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedrec.federation.config import MethodConfig
from fedrec.federation.payload import State
from fedrec.parts.inverse import Told
from fedrec.parts.order import Decay
from fedrec.parts.ordered_weights import precision, symmetric, weight_rows
from fedrec.parts.recent import dense_parts, dense_scores, kept_parts, kept_scores, largest, recency

ORDERED = "ordered"
FORMS = {32: torch.float32, 16: torch.float16, 8: torch.int8}


class SlistConfig(MethodConfig):
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
    keep: int | None = Field(None, ge=1)
    """Publish only so many weights of every item, the largest; none: all of them."""
    bits: Literal[32, 16, 8] = 32
    """Of every published weight: float32, float16, or int8 with a scale per item; fewer need ``keep``."""
    memory_gb: float | None = Field(None, gt=0)
    """Refuse catalogues whose item-item matrices need more; by default what is free."""

    @property
    def uses_order(self) -> bool:
        """Unless it is told not to."""
        return self.order == "time"

    def decay(self, timed: bool, clip: float | None = None) -> Decay:
        """What a client adds."""
        return Decay(self.delta_p, self.delta_f, self.a, timed and self.order == "time", clip)

    def empty(self, n_items: int, device: torch.device) -> State:
        """Published weights before there are any, and whether they know of order."""
        ordered = {ORDERED: torch.zeros(1, dtype=torch.bool, device=device)}
        if self.keep is None:
            return ordered | {"weights": torch.zeros(n_items, n_items, device=device)}
        shape, numbers = (n_items, min(self.keep, n_items)), torch.int16 if n_items < 1 << 15 else torch.int32
        found = {
            "values": torch.zeros(shape, dtype=FORMS[self.bits], device=device),
            "items": torch.zeros(shape, dtype=numbers, device=device),
        }
        found |= ordered
        return found | ({"scale": torch.ones(n_items, device=device)} if self.bits == 8 else {})

    def published(self, past: Tensor, after: Tensor, timed: bool, told: Told | None = None) -> State:
        """What the server publishes, from A (upper triangle) and R in units of 2^-16, or both floating and whole."""
        whole = past if past.is_floating_point() else symmetric(past, precision(past, self.lam))
        found, first = self.empty(len(past), past.device), 0
        found[ORDERED].fill_(timed and self.order == "time")
        for rows in weight_rows(whole, after, self.lam, told):
            to = slice(first, first + len(rows))
            first += len(rows)
            if self.keep is None:
                found["weights"][to] = rows
                continue
            values, items = largest(rows, self.keep)
            found["items"][to] = items.to(found["items"].dtype)
            if self.bits == 8:
                scale = values.abs().amax(1).clamp(min=1e-30) / 127
                found["scale"][to] = scale
                values = (values / scale[:, None]).round()
            found["values"][to] = values.to(found["values"].dtype)
        return found

    def about(self, model: State) -> dict[str, Any]:
        """What the result of a run says of the model."""
        if bool(model[ORDERED]):
            return {"order": "time"}
        why = "the data have no time" if self.order == "time" else "by its settings"
        return {"order": f"none: {why}, so this is EASE with the same lam"}

    def scores(self, model: State, history: Tensor) -> Tensor:
        """q'B of these histories [c, W]."""
        counts = recency(history, self.delta_q if bool(model[ORDERED]) else None)
        if "weights" in model:
            return dense_scores(history, counts, model["weights"])
        return kept_scores(history, counts, _kept_values(model), model["items"])

    def parts(self, model: State, history: Tensor, items: Tensor) -> Tensor:
        """What every item of these histories adds to the scores of ``items`` [c, k]: [c, W, k]."""
        counts = recency(history, self.delta_q if bool(model[ORDERED]) else None)
        if "weights" in model:
            return dense_parts(history, counts, model["weights"], items)
        return kept_parts(history, counts, _kept_values(model), model["items"], items)


def _kept_values(model: State) -> Tensor:
    values = model["values"].float()
    return values * model["scale"][:, None] if "scale" in model else values
