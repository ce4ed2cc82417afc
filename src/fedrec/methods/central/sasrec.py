"""SASRec: a causal transformer over a user's items, trained with cross-entropy over all items.

Kang and McAuley, "Self-attentive sequential recommendation", ICDM 2018; with cross-entropy over all items as in Klenitskiy
and Vasilev, "Turning dross into gold loss: is BERT4Rec really better than SASRec?", RecSys 2023. ``fedsasrec`` is the same
model as a federation: its gradient rounds are the steps taken here, to rounding.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fedrec.federation.payload import State
from fedrec.federation.task import Task
from fedrec.methods.central.base import CentralMethod
from fedrec.methods.central.observed import Observed
from fedrec.methods.fedsasrec.config import SasrecConfig
from fedrec.parts.adamw import stepped
from fedrec.parts.recent import own_history
from fedrec.parts.sequences import block, blocks, shuffled


class Sasrec(CentralMethod):
    """Blocks of users, AdamW."""

    name = "sasrec"
    title = "centralised transformer over a user's items, cross-entropy over all items"
    paper = "Kang and McAuley 2018; Klenitskiy and Vasilev 2023"
    Config = SasrecConfig
    config: SasrecConfig
    rounds = 60
    logits = False
    folds_in = True

    def start(self, data: Observed, task: Task) -> State:
        """Random values."""
        return self.config.initial(task)

    def epoch(self, state: State, data: Observed, task: Task, number: int) -> Tensor:
        """Every user once, block by block."""
        steps = blocks(task, self.config.block)
        mean = torch.zeros((), device=task.device)
        for step in range(number * steps, (number + 1) * steps):
            users = block(task, self.config.block, step)
            history = _histories(data, users)
            if data.view.history is None:
                history = shuffled(history, task, users, step)
            sums, losses, lengths = self.config.gradient(task, state, history, users, step)
            places = lengths.sum().clamp(min=1)
            slopes = {name: value / places for name, value in sums.items()}
            state.update(stepped(state, slopes, lr=self.config.lr, weight_decay=self.config.weight_decay))
            mean += (losses / lengths.clamp(min=1)).sum() / len(task.able)
        return mean

    def rate(self, ready: State, data: Observed, clients: Tensor) -> Tensor:
        """What comes next."""
        return self.rate_histories(ready, data, _histories(data, clients))

    def rate_histories(self, ready: State, data: Observed, history: Tensor) -> Tensor:
        """What comes next."""
        return self.config.scores(ready["items"], ready["network"], history)

    def diagnostics(self, task: Task, state: State) -> dict[str, Any]:
        """Size of the network."""
        return self.config.about()


def _histories(data: Observed, users: Tensor) -> Tensor:
    everybody = torch.arange(data.n_users)
    whole = data.once("history", lambda data: own_history(data.view, everybody)["history"].to(data.device))
    return whole[users.to(data.device)]
