"""Item neighbours by cosine, the oldest baseline that still holds.

Sarwar, Karypis, Konstan, Riedl, "Item-based collaborative filtering recommendation algorithms", WWW 2001; shrinkage of
rare pairs as in Ferrari Dacrema, Cremonesi, Jannach, RecSys 2019: sim_ij = c_ij / (sqrt(c_i c_j) + shrink).
"""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fedrec.federation.config import MethodConfig
from fedrec.federation.payload import State
from fedrec.federation.search import Range, Space
from fedrec.federation.task import Task
from fedrec.methods.central.base import CentralMethod
from fedrec.methods.central.observed import Observed
from fedrec.parts.gram import check_square, gram
from fedrec.parts.recent import dense_parts, dense_scores, recency


class ItemKNNConfig(MethodConfig):
    """Settings of ItemKNN."""

    space: ClassVar[Space] = {
        "k": Range(5, 1000, log=True, whole=True),
        "shrink": Range(0.0, 200.0),
    }

    k: int = Field(100, ge=1)
    """Neighbours kept per item."""
    shrink: float = Field(10.0, ge=0)
    """Added to the denominator, so that pairs seen rarely count less."""
    memory_gb: float | None = Field(None, gt=0)
    """Refuse catalogues whose item-item matrices need more; by default what is free."""


class ItemKNN(CentralMethod):
    """An item scores by its similarity to the user's items among its nearest neighbours."""

    name = "itemknn"
    title = "centralised item neighbours by shrunk cosine"
    paper = "Sarwar et al. 2001"
    Config = ItemKNNConfig
    config: ItemKNNConfig
    rounds = 1
    logits = False
    folds_in = explains = True

    def start(self, data: Observed, task: Task) -> State:
        """No neighbours yet."""
        check_square(self.name, data.n_items, data.device, self.config.memory_gb, "filter the data", per_entry=16)
        return {"weights": torch.zeros(data.n_items, data.n_items, device=data.device)}

    def epoch(self, state: State, data: Observed, task: Task, number: int) -> Tensor:
        """Count pairs, divide, keep the nearest."""
        counts = gram(data.pair_users, data.pair_items, data.n_items)
        root = counts.diagonal().sqrt()
        similar = counts / (torch.outer(root, root) + self.config.shrink).clamp_(min=1e-12)
        similar.fill_diagonal_(0)
        # Column j holds the neighbours of item j, so x_u W sums what they say about j. All that tie with the last stay.
        last = similar.topk(min(self.config.k, data.n_items), dim=0).values[-1]
        state["weights"] = torch.where(similar >= last, similar, 0)
        return torch.zeros(())

    def rate(self, ready: State, data: Observed, clients: Tensor) -> Tensor:
        """The sum of similarities to the user's items."""
        return data.times(ready["weights"], clients)

    def rate_histories(self, ready: State, data: Observed, history: Tensor) -> Tensor:
        """The same for any items."""
        return dense_scores(history, recency(history, None), ready["weights"])

    def rate_parts(self, ready: State, data: Observed, history: Tensor, items: Tensor) -> Tensor:
        """What their weights, or similarities, are."""
        return dense_parts(history, recency(history, None), ready["weights"], items)
