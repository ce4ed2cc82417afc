"""SLIST: what comes after what, as a linear item-item model in closed form.

Choi, Kim, Lee, Shim, Lee, "Session-aware linear item-item models for session-based recommendation", WWW 2021, with a whole
history as one session; ``fedslist`` is the same model as a federation, and equal to all digits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fedrec.federation.payload import State
from fedrec.federation.task import Task
from fedrec.methods.central.base import CentralMethod
from fedrec.methods.central.observed import Observed
from fedrec.methods.fedslist.config import SlistConfig, per_entry
from fedrec.parts.gram import check_square
from fedrec.parts.order import add_histories
from fedrec.parts.recent import own_history

CLIENTS = 4096
"""Histories laid out at a time."""


class Slist(CentralMethod):
    """Item-item weights from the order of things."""

    name = "slist"
    title = "centralised linear item-item model of what comes after what, in closed form"
    paper = "Choi et al. 2021"
    Config = SlistConfig
    config: SlistConfig
    rounds = 1
    logits = False
    folds_in = explains = True

    def start(self, data: Observed, task: Task) -> State:
        """No weights yet."""
        check_square(
            self.name,
            data.n_items,
            data.device,
            self.config.memory_gb,
            "filter the data",
            per_entry=per_entry(self.config),
        )
        return self.config.empty(data.n_items, data.device)

    def epoch(self, state: State, data: Observed, task: Task, number: int) -> Tensor:
        """Add up all histories and solve; a second pass finds the same."""
        shape, device = (data.n_items, data.n_items), data.device
        past, after = (torch.zeros(shape, dtype=torch.int64, device=device) for _ in range(2))
        decay = self.config.decay(data.view.history is not None)
        for clients in torch.split(torch.arange(data.n_users), CLIENTS):
            history = own_history(data.view, clients)["history"].to(device)
            add_histories(past, after, history, (history >= 0).sum(1), decay)
        state.update(self.config.solved(past, after, data.view.history is not None))
        return torch.zeros(())

    def rate(self, ready: State, data: Observed, clients: Tensor) -> Tensor:
        """q'B."""
        return self.rate_histories(ready, data, own_history(data.view, clients.cpu())["history"].to(data.device))

    def rate_histories(self, ready: State, data: Observed, history: Tensor) -> Tensor:
        """q'B."""
        return self.config.scores(ready, history)

    def rate_parts(self, ready: State, data: Observed, history: Tensor, items: Tensor) -> Tensor:
        """The weights of the user's items."""
        return self.config.parts(ready, history, items)

    def diagnostics(self, task: Task, state: State) -> dict[str, Any]:
        """Whether order counted."""
        return self.config.about(state)
