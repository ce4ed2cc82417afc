"""Settings of FedGains, the weights its server publishes, and the rankings that gains are of."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor

from fedrec.federation.payload import State
from fedrec.federation.search import Range, Space
from fedrec.methods.fedgains.gains import Picks, log_ranks
from fedrec.methods.fedslist.config import ORDERED, SlistConfig
from fedrec.parts.ordered_weights import inverted, solution_rows
from fedrec.parts.published import no_weights, published, weighted_scores
from fedrec.parts.recent import recency

Which = Literal["before", "now"]
"""Weights from histories without what is held back, or from whole ones."""
NEXT, ALIKE, COUNTS = "next", "alike", "counts"


class FedGainsConfig(SlistConfig):
    """Settings of FedGains; none as a decay is an infinite one."""

    space: ClassVar[Space] = {**SlistConfig.space, "personal": Range(0.1, 3.0, log=True)}

    quick: float = Field(2.0, gt=0)
    """How fast the history fades in a second ranking by the same weights."""
    slow: float = Field(30.0, gt=0)
    """And in a third one."""
    recent: int = Field(10, ge=1)
    """The newest items of a client, by which items are popular now."""
    held: int = Field(10, ge=1)
    """Newest items of a client that its gains are fitted on, a third of its history at most; weights for that are from the others."""
    start: tuple[float, ...] = (0.4, 0.4, 0.4, 0.4, 0.0, 0.0)
    """Shared gains to begin with: of delta_q, quick and slow, of having both items, of how popular items are, and are now."""
    gain_rounds: int = Field(4, ge=0)
    """Rounds that look for the mean and the spread of gains."""
    sample: int = Field(500, ge=2)
    """Clients that are drawn for each of these rounds."""
    personal: float = Field(1.0, ge=0)
    """Spread of gains that a client reckons with, times what was found; 0: all have the mean."""

    @field_validator("start")
    @classmethod
    def _complete(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if len(value) != len(RANKINGS):
            raise ValueError(f"give {len(RANKINGS)} gains, one for each of {', '.join(RANKINGS)}")
        return value

    def nothing(self, n_items: int, device: torch.device) -> State:
        """What is published before there is anything: both kinds of weights, twice, and how popular items are."""
        found: State = {ORDERED: torch.zeros(1, dtype=torch.bool, device=device)}
        for which in ("before", "now"):
            for kind in (NEXT, ALIKE):
                weights = no_weights(self, n_items, device)
                found |= {f"{which}.{kind}.{name}": value for name, value in weights.items()}
            found[f"{which}.{COUNTS}"] = torch.zeros(2, n_items, dtype=torch.int64, device=device)
        return found

    def learned(self, which: Which, past: Tensor, after: Tensor, counts: Tensor) -> State:
        """What the server publishes, from A (upper triangle) and R in units of 2^-16, which are overwritten, and counts of items."""
        size, device = len(past), past.device
        inverse, right = inverted(past, after, self.lam)
        found: State = {f"{which}.{COUNTS}": counts}
        for kind in (NEXT, ALIKE):
            if kind == ALIKE:  # A and R without order: having an item before or after another one is the same
                right = (right + right.T) / 2
            weights = published(self, solution_rows(inverse, right), size, device)
            found |= {f"{which}.{kind}.{name}": value for name, value in weights.items()}
        return found

    def features(self, model: State, which: Which, history: Tensor) -> Tensor:
        """-log(rank) of every item [c, m, F] in all rankings, for clients with these histories."""
        after, alike = (_part(model, f"{which}.{kind}.") for kind in (NEXT, ALIKE))
        found = [weighted_scores(after, history, recency(history, d)) for d in (self.delta_q, self.quick, self.slow)]
        found.append(weighted_scores(alike, history, recency(history, None)))
        ranked = [log_ranks(scores) for scores in found]
        ranked += [log_ranks(counts[None].float()).expand_as(ranked[0]) for counts in model[f"{which}.{COUNTS}"]]
        return torch.stack(ranked, 2)

    def picks(self, model: State, history: Tensor, held: Tensor) -> Picks:
        """What clients with these histories picked last, ``held`` [c] items each, against weights that know nothing of that."""
        items, features, unseen, valid = list[Tensor](), list[Tensor](), list[Tensor](), list[Tensor]()
        lengths = (history >= 0).sum(1)
        for pick in range(max(1, int(held.max()))):
            left = (held - pick).clamp(min=1)  # clients with fewer picks repeat their last one, which does not count
            past = without(history, left)
            features.append(self.features(model, "before", past))
            items.append(history.gather(1, (lengths - left).clamp(min=0)[:, None])[:, 0].long().clamp(min=0))
            valid.append(pick < held)
            unseen.append(_unseen(past, features[-1].shape[1]))
        return Picks(*(torch.stack(parts, 1) for parts in (features, unseen, items, valid)))

    def held_back(self, history: Tensor) -> Tensor:
        """How many of the newest items of these histories gains are fitted on, [c]."""
        return ((history >= 0).sum(1) // 3).clamp(max=self.held)


RANKINGS = ("delta_q", "quick", "slow", "alike", "popular", "popular now")


def without(history: Tensor, newest: Tensor) -> Tensor:
    """Histories without so many of the newest items of each."""
    left = (history >= 0).sum(1) - newest
    return history.where(torch.arange(history.shape[1], device=history.device) < left[:, None], -1)


def _unseen(history: Tensor, n_items: int) -> Tensor:
    found = torch.ones(len(history), n_items + 1, dtype=torch.bool, device=history.device)
    found.scatter_(1, history.long().where(history >= 0, n_items), False)
    return found[:, :-1]


def _part(model: State, prefix: str) -> State:
    return {name.removeprefix(prefix): value for name, value in model.items() if name.startswith(prefix)}
