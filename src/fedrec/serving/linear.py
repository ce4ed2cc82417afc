"""Item-item models as what they are: weights between items, added up over a history, what is recent counting more."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedrec.federation.trainer import FromHistory
from fedrec.running.newcomers import Newcomers

MOST_ITEMS = 20_000
"""Weights between more items are no longer held as one matrix; it would have 1.6 GB."""
_AT_ONCE = 512


@dataclass(frozen=True, eq=False)
class Linear:
    """Scores of a history: ``base`` and the rows of ``weights`` that belong to its items, each with its weight."""

    weights: Tensor  # [m, m]
    base: Tensor  # [m]
    decay: float | None
    """How fast items lose weight with age: exp(-age / decay); None: never."""

    def counts(self, history: Tensor) -> Tensor:
        """The weight of every item of a history [W], oldest first."""
        age = torch.arange(len(history) - 1, -1, -1, dtype=torch.float64)
        return torch.ones(len(history)) if self.decay is None else torch.exp(-age / self.decay).float()

    def scores(self, history: Tensor) -> Tensor:
        """[m]."""
        return torch.addmv(self.base, self.weights[history].T, self.counts(history))

    def contributions(self, history: Tensor, items: Tensor) -> Tensor:
        """What every item of a history adds to the scores of ``items`` [k], as [W, k]."""
        return self.weights[history[:, None], items] * self.counts(history)[:, None]

    def vector(self, history: Tensor) -> Tensor:
        """A history as what the graph of the model takes, [m]."""
        found = torch.zeros(len(self.base))
        found[history] = self.counts(history)
        return found


@torch.no_grad()
def linear_form(newcomers: Newcomers) -> Linear | None:
    """The model in this form; None where it is none of that kind, checked on random histories, or has too many items."""
    m, trainer = newcomers.n_items, newcomers.trainer
    fits = newcomers.at_once and newcomers.method.explains and m <= MOST_ITEMS
    if not fits or not isinstance(trainer, FromHistory):
        return None
    base = trainer.scores_from(torch.tensor([[-1]]))[0].cpu().float()
    parts = torch.split(torch.arange(m), _AT_ONCE)
    weights = torch.cat([trainer.scores_from(part[:, None]).cpu().float() - base for part in parts])
    form = Linear(weights, base, _decay(trainer, weights, base))
    return form if _agrees(trainer, form) else None


def _decay(trainer: FromHistory, weights: Tensor, base: Tensor) -> float | None:
    """How fast items lose weight with age, from a history of two."""
    old = int(weights.abs().max(1).values.argmax())
    new = (old + 1) % len(weights)
    both = trainer.scores_from(torch.tensor([[old, new]]))[0].cpu().float()
    column = int(weights[old].abs().argmax())
    share = float((both[column] - base[column] - weights[new, column]) / weights[old, column])
    return None if not 0 < share < 1 - 1e-5 else -1 / math.log(share)


def _agrees(trainer: FromHistory, form: Linear) -> bool:
    random = torch.Generator().manual_seed(0)
    for length in (1, 3, 8, 20):
        history = torch.randperm(len(form.base), generator=random)[:length]
        expected = trainer.scores_from(history[None])[0].cpu().float()
        scale = max(1e-12, float(expected.abs().max()))
        if not torch.allclose(form.scores(history), expected, rtol=1e-3, atol=1e-3 * scale):
            return False
    return True
