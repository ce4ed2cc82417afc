"""EASE: the best linear item-item model, in closed form.

Steck, "Embarrassingly shallow autoencoders for sparse data", WWW 2019: minimise ||X - X B||^2 + lambda ||B||^2 with a zero
diagonal; a user scores x_u B. No negatives, no seed, one pass; ``fedgram`` is the same model as a federation.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fedrec.federation.payload import State
from fedrec.federation.search import Options, Range, Space
from fedrec.federation.task import Task
from fedrec.methods.central.base import CentralMethod
from fedrec.methods.central.observed import Observed
from fedrec.parts.gram import SOLVING, check_square, ease_dtype, ease_rows, gram, row_scale
from fedrec.parts.published import WeightsConfig, no_weights, published, weighted_parts, weighted_scores
from fedrec.parts.recent import own_history, recency


class EASEConfig(WeightsConfig):
    """Settings of EASE."""

    space: ClassVar[Space] = {
        "lam": Range(1.0, 20_000.0, log=True),
        "normalise": Options((False, True)),
        "delta_q": Range(1.0, 1000.0, log=True),
    }

    lam: float = Field(500.0, gt=0)
    """L2 penalty lambda, the only thing to tune."""
    normalise: bool = False
    """Scale every user's row to length 1 before counting."""
    delta_q: float | None = Field(None, gt=0)
    """How fast the history fades that a user is scored with, in items; none: not at all, as in data without time."""

    @property
    def uses_order(self) -> bool:
        """Where the history fades."""
        return self.delta_q is not None


class EASE(CentralMethod):
    """Item-item weights with a zero diagonal."""

    name = "ease"
    title = "centralised linear item-item model in closed form"
    paper = "Steck 2019"
    Config = EASEConfig
    config: EASEConfig
    rounds = 1
    logits = False
    folds_in = explains = True

    def start(self, data: Observed, task: Task) -> State:
        """No weights yet."""
        advice = "filter the data, or train fedgram with top_items"
        dense = 4 if self.config.keep is None else 0
        check_square(self.name, data.n_items, data.device, self.config.memory_gb, advice, per_entry=SOLVING + dense)
        return no_weights(self.config, data.n_items, data.device)

    def epoch(self, state: State, data: Observed, task: Task, number: int) -> Tensor:
        """Count and solve; a second pass finds the same."""
        values = row_scale(data.counts)[data.pair_users] if self.config.normalise else None
        counts = gram(data.pair_users, data.pair_items, data.n_items, values)
        counts = counts.to(ease_dtype(counts, self.config.lam))
        state.update(published(self.config, ease_rows(counts, self.config.lam), data.n_items, data.device))
        return torch.zeros(())

    def rate(self, ready: State, data: Observed, clients: Tensor) -> Tensor:
        """The sum of the weights of the user's items."""
        if "weights" in ready and self._decay(data) is None:
            return data.times(ready["weights"], clients)
        return self.rate_histories(ready, data, own_history(data.view, clients.cpu())["history"].to(data.device))

    def rate_histories(self, ready: State, data: Observed, history: Tensor) -> Tensor:
        """The same for any items."""
        return weighted_scores(ready, history, recency(history, self._decay(data)))

    def rate_parts(self, ready: State, data: Observed, history: Tensor, items: Tensor) -> Tensor:
        """What their weights are."""
        return weighted_parts(ready, history, recency(history, self._decay(data)), items)

    def _decay(self, data: Observed) -> float | None:
        return self.config.delta_q if data.view.history is not None else None
