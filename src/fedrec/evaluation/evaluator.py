"""Holds the validation and test items and turns scores into per-client metric values.

A trainer never sees an evaluator: it only offers a function from client numbers to scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrec.data.training import Ragged
from fedrec.evaluation.metrics import compute, parse_metric
from fedrec.evaluation.ranking import candidate_ranks, check_finite, full_ranks, top_items
from fedrec.protocol.split import HeldOut, Split

Part = Literal["validation", "test"]
Scorer = Callable[[Tensor], Tensor]
"""Scores [c, items] of the clients with the given numbers [c]."""


class FoldedScorer(Protocol):
    """Scores [c, items] of clients who each got the items ``later`` [c, k], padded with -1, after training."""

    def __call__(self, clients: Tensor, *, later: Tensor) -> Tensor:
        """The scores."""
        ...


Values = dict[str, NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Per-client values of every metric; NaN for a client without held-out items."""

    sampled: Values = field(default_factory=dict)
    full: Values = field(default_factory=dict)

    def means(self) -> dict[str, dict[str, float]]:
        """Mean over clients, by ranking and metric."""
        rankings = {"sampled": self.sampled, "full": self.full}
        return {kind: {name: _mean(v) for name, v in values.items()} for kind, values in rankings.items()}


class Evaluator:
    """Ranks held-out items exactly, chunk by chunk, on the device the scores live on."""

    def __init__(self, split: Split, device: torch.device | str = "cpu", *, logits: bool = True) -> None:
        """Prepare the held-out items of ``split`` for scores on ``device``.

        Only ``logits`` are squashed where the protocol ranks sigmoids; counts and the like are ranked as they are.
        """
        for name in (*split.protocol.metrics, *split.protocol.full_metrics):
            parse_metric(name)  # a wrong one is refused now, not after a round of training
        self.split = split
        self._squash = logits and split.protocol.scores == "sigmoid"
        self.device = torch.device(device)
        n_items = split.data.n_items
        self.chunk = max(1, (1 << 20 if self.device.type == "cpu" else 1 << 26) // n_items)
        self._train = self._table(split.training.positives)
        self._parts: dict[str, tuple[HeldOut, Tensor, Tensor | None]] = {}
        for name, held in (("validation", split.validation), ("test", split.test)):
            drawn = None if held.candidates is None else torch.from_numpy(held.candidates).long().to(self.device)
            self._parts[name] = held, self._table(held.items), drawn

    def _table(self, lists: Ragged) -> Tensor:
        """The lists as one int64 table padded with -1."""
        table = np.full((len(lists), max(1, int(lists.counts.max(initial=0)))), -1, np.int64)
        position = np.arange(len(lists.values)) - np.repeat(lists.offsets[:-1], lists.counts)
        table[lists.owners, position] = lists.values
        return torch.from_numpy(table).to(self.device)

    def chunks(self, order: Tensor | None = None) -> Iterable[Tensor]:
        """Client numbers, in the given order, in blocks whose scores fit the cache (CPU) or fill the device."""
        clients = torch.arange(self.split.data.n_users) if order is None else order
        return torch.split(clients, self.chunk)

    def evaluate(
        self,
        scorer: Scorer,
        *wanted: Part,
        order: Tensor | None = None,
        progress: Callable[[int], None] = lambda done: None,
        folded: FoldedScorer | None = None,
    ) -> dict[Part, Evaluation]:
        """Metric values of the wanted parts; clients are scored once for all of them, in ``order`` where that is faster.

        ``progress`` is told how many clients are done. With ``folded``, test items are ranked by the scores of clients who
        have their validation items, too.
        """
        n, ready = self.split.data.n_users, 0
        done = {part: Evaluation() for part in wanted}
        for clients in self.chunks(order):
            scores = self._scores(scorer, clients)
            for part in wanted:
                known = scores
                if part == "test" and folded is not None:
                    came = self._parts["validation"][1][clients.to(self.device)]
                    known = self._scores(partial(folded, later=came), clients)
                blocks = self._evaluate(known, clients.to(self.device), part)
                for values, block in zip((done[part].sampled, done[part].full), blocks, strict=True):
                    for name, value in block.items():
                        values.setdefault(name, np.full(n, np.nan))[clients.numpy()] = value
            ready += len(clients)
            progress(ready)
        return done

    def top(self, scorer: Scorer, k: int = 10, order: Tensor | None = None) -> Tensor:
        """The ``k`` best new items of every client (training items left out), int64 [n, k], -1 is padding.

        With ``order``, of the clients in it, which are scored in that order; the rows of all others are padding.
        """
        lists = torch.full((self.split.data.n_users, k), -1, dtype=torch.int64)
        for clients in self.chunks(order):
            scores = self._scores(scorer, clients)
            masked = self._mask(scores, clients.to(self.device), "validation")
            lists[clients] = top_items(scores, masked, k, clients).cpu()
        return lists

    def _scores(self, scorer: Scorer, clients: Tensor) -> Tensor:
        scores = scorer(clients)
        check_finite(scores, clients)
        return torch.sigmoid(scores.float()) if self._squash else scores

    def _mask(self, scores: Tensor, clients: Tensor, part: Part) -> Tensor:
        masked = torch.zeros(scores.shape[0], scores.shape[1] + 1, dtype=torch.bool, device=scores.device)
        lists = [self._train[clients]]
        if part == "test":
            lists.append(self._parts["validation"][1][clients])
        for items in lists:
            masked.scatter_(1, items.where(items >= 0, scores.shape[1]), True)
        return masked[:, :-1]

    def _evaluate(self, scores: Tensor, clients: Tensor, part: Part) -> tuple[Values, Values]:
        protocol = self.split.protocol
        _, targets, candidates = self._parts[part]
        targets = targets[clients]
        sampled: Values = {}
        if candidates is not None:
            better, tied = candidate_ranks(scores, targets[:, 0], candidates[clients], clients)
            sampled = _numpy(compute(protocol.metrics, better, tied, ties=protocol.rank_ties))
        better, tied = full_ranks(scores, targets, self._mask(scores, clients, part), clients)
        return sampled, _numpy(compute(protocol.full_metrics, better, tied, ties=protocol.rank_ties))


def _mean(values: NDArray[np.float64]) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def _numpy(values: dict[str, Tensor]) -> Values:
    return {name: value.cpu().numpy() for name, value in values.items()}
