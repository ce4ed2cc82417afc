"""Why an item is recommended: what every item that somebody has had adds to its score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from fedrec.data.interactions import Interactions
from fedrec.errors import ConfigError
from fedrec.federation.recommender import Recommender
from fedrec.federation.trainer import FromHistory, OfParts, Trainer

MOST = 3
"""Reasons named unless more are asked for."""


@dataclass(frozen=True)
class Reason:
    """An item of the past, and how much of a score it is."""

    item: str | int
    part: float


@dataclass(frozen=True)
class Explanation:
    """The score of an item as a sum: its reasons, the largest first, and all that is not named."""

    item: str | int
    score: float
    reasons: tuple[Reason, ...]
    parts: dict[str, float] = field(default_factory=dict)
    """What each of several recommenders adds to it, where it is a blend of them."""

    @property
    def rest(self) -> float:
        """What the items that are not named add up to, and whatever the past has nothing to do with."""
        return self.score - sum(reason.part for reason in self.reasons) - sum(self.parts.values())

    def describe(self) -> dict[str, Any]:
        """Plain values."""
        reasons = [{"item": reason.item, "part": reason.part} for reason in self.reasons]
        found = {"item": self.item, "score": self.score, "because": reasons, "rest": self.rest}
        return found | ({"parts": self.parts} if self.parts else {})


def explain_parts(trainer: OfParts, data: Interactions, client: Tensor, items: Tensor) -> list[Explanation]:
    """Of every one of ``items`` [k]: what each part of a blend adds to its score for this ``client`` [1]."""
    added = {name: values[0].tolist() for name, values in trainer.added(client, items).items()}
    found = []
    for column, item in enumerate(items.tolist()):
        parts = {name: values[column] for name, values in added.items()}
        found.append(Explanation(data.item_ids[item], sum(parts.values()), (), parts))
    return found


def explain(
    method: Recommender, trainer: Trainer, data: Interactions, history: Tensor, items: Tensor, most: int = MOST
) -> list[Explanation]:
    """Of every one of ``items`` [k]: what it has to do with a ``history`` [W], oldest first, both as numbers."""
    if most < 0:
        raise ConfigError(f"{most} reasons were asked for; use 0 or more.")
    if not method.explains or not isinstance(trainer, FromHistory):
        raise ConfigError(
            f"{method.name} cannot say which items of the past a recommendation is due to, because its scores are not sums "
            "over them; linear models of items such as fedslist, fedgram, ease and itemknn can."
        )
    past = history[None]
    scores = trainer.scores_from(past)[0].cpu()
    parts = trainer.contributions(past, items[None])[0].cpu()
    return named_reasons(data.item_ids, history, items, scores, parts, most)


def named_reasons(
    ids: Sequence[str | int], history: Tensor, items: Tensor, scores: Tensor, parts: Tensor, most: int
) -> list[Explanation]:
    """Scores [m] and what a history adds to those of ``items`` [W, k], by original ids, the largest parts first."""
    found, own, values = [], history.tolist(), scores[items].tolist()
    order = parts.abs().argsort(dim=0, descending=True, stable=True)[:most]
    for item, score, places, added in zip(
        items.tolist(), values, order.T.tolist(), parts.gather(0, order).T.tolist(), strict=True
    ):
        reasons = tuple(Reason(ids[own[j]], part) for j, part in zip(places, added, strict=True) if part)
        found.append(Explanation(ids[item], score, reasons))
    return found
