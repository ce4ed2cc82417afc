"""Which round is reported: evaluates rounds, remembers the best one, and keeps the test values sealed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from fedrec.compute.memory import available
from fedrec.errors import FedrecError
from fedrec.evaluation.evaluator import Evaluation, Evaluator
from fedrec.federation.shares import Shares
from fedrec.federation.trainer import Trainer
from fedrec.protocol.split import Split
from fedrec.running.history import Means
from fedrec.sampling.streams import Purpose


@dataclass
class Best:
    """The selected round so far: its results and, where memory allows, its state."""

    round: int
    value: float
    results: dict[str, Evaluation]
    state: dict[str, Tensor] | None


class Selection:
    """Evaluates a trainer as the split's protocol says, and keeps the best round."""

    def __init__(
        self, trainer: Trainer, split: Split, device: torch.device, shares: Shares, sample: Tensor | None = None
    ) -> None:
        """Nothing is evaluated yet; each process evaluates its clients, and all know the results.

        With a ``sample`` of clients the others have no values.
        """
        self._inside = torch.ones(split.data.n_users, dtype=torch.bool)
        if sample is not None:
            self._inside = torch.zeros_like(self._inside)
            self._inside[sample] = True
        self.evaluated = int(self._inside.sum())
        self.trainer, self.split, self.shares = trainer, split, shares
        self.evaluator = Evaluator(split, device, logits=trainer.logits)
        self.best: Best | None = None
        self.final: dict[str, Evaluation] = {}
        """The newest results, by part and view; views are there where somebody will read them: of the best round and the last."""
        self.tell: Callable[[int, int], None] = lambda done, total: None
        """Told of how many of all clients are evaluated, while they are."""
        # A copy of the state at the best round lets the run recommend from it; a very large one is not worth it.
        size = sum(tensor.numel() * tensor.element_size() for tensor in trainer.state().values())
        self.keeps_state = shares.decided(shares.sums(size)[0] < available(device) // 8)

    def measure(self, *views: str | None) -> None:
        """Evaluate the current state on both parts, through ``views`` of the method; None is how it scores."""
        n = self.evaluated
        for number, view in enumerate(views):
            scorer = partial(self.trainer.scores, view=view)
            later = self.trainer.folds_in and self.split.protocol.history_at_test == "train+validation"
            tell = partial(self._tell, number * n, len(views) * n)
            found = self.evaluator.evaluate(
                scorer,
                "validation",
                "test",
                order=self.order,
                progress=tell,
                folded=scorer if later else None,
            )
            for part, value in found.items():
                self.final[part if view is None else f"{part}@{view}"] = self._together(value)

    @property
    def order(self) -> Tensor | None:
        """The clients this process evaluates, in the order in which that is fastest."""
        order = self.trainer.client_order if self.shares.alone else self.shares.own
        if self.evaluated == len(self._inside):
            return order
        everybody = torch.arange(len(self._inside)) if order is None else order
        return everybody[self._inside[everybody]]

    def _together(self, own: Evaluation) -> Evaluation:
        """With the values of the clients of other processes."""
        kinds = (own.sampled, own.full)
        shared = [
            {name: self.shares.together(torch.from_numpy(v)).numpy() for name, v in kind.items()} for kind in kinds
        ]
        return Evaluation(*shared)

    def top(self, k: int) -> Tensor:
        """The ``k`` best new items of every client, int64 [n, k], -1 is padding."""
        own = self.evaluator.top(self.trainer.scores, k, order=self.order)
        return self.shares.together(own)

    def _tell(self, before: int, total: int, done: int) -> None:
        self.tell(before + min(done * self.shares.peers.size, self.evaluated), total)

    def evaluate(self, done: int) -> dict[str, Means]:
        """Evaluate both parts; what is shown and what selects is the protocol's business, the rest stays sealed."""
        protocol = self.split.protocol
        self.final = {}
        self.measure(None)
        shown = {"validation": self.final["validation"].means()}
        if protocol.select_on == "test":
            shown["test"] = self.final["test"].means()
        value = shown[protocol.select_on][protocol.select_ranking][protocol.select_metric]
        chosen = protocol.holdout != "nothing"  # else the last round counts
        if chosen and np.isnan(value):
            raise FedrecError(
                f"{self.split.data.name} has no {protocol.select_on} items under '{protocol.name}', so no round can be "
                "chosen; raise validation_ratio or use data with more rows per user."
            )
        better = (
            not chosen
            or self.best is None
            or value > self.best.value
            or (value == self.best.value and protocol.select_later)
        )
        if better:
            self.measure(*self.trainer.views)
            state = None
            if self.keeps_state:
                state = {name: tensor.clone() for name, tensor in self.trainer.state().items()}
            self.best = Best(done, value, self.final, state)
        return shown

    def conclude(self, rounds: int) -> Best:
        """The selected round after the last one; what a run resumed at its end has not measured is measured now."""
        if self.best is None:
            self.evaluate(rounds)
        elif not self.final:
            self.measure(None)
        self.measure(*(view for view in self.trainer.views if f"test@{view}" not in self.final))
        assert self.best is not None
        return self.best


def drawn(users: int, wanted: int, seed: int) -> Tensor:
    """A random sample of so many clients, ascending; the same for a seed."""
    rng = np.random.default_rng([seed, int(Purpose.EVALUATION)])
    return torch.from_numpy(np.sort(rng.choice(users, min(wanted, users), replace=False)))
