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

from fedrec.evaluation.metrics import compute, parse_metric
from fedrec.evaluation.ranked import Padded, Ranks, compiled_ranks, compiled_top, compiles
from fedrec.evaluation.ranking import MISSING, candidate_ranks, check_finite, full_ranks, top_items
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
SLOTS = 1 << 20
"""Held-out items whose metrics are computed at a time."""


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
        self.chunk = max(1, (1 << 20 if self.device.type == "cpu" else 1 << 26) // split.data.n_items)
        self._train = Padded(split.training.positives, self.device)
        self._held = {"validation": split.validation, "test": split.test}
        self._items = {part: Padded(held.items, self.device) for part, held in self._held.items()}
        self._drawn = {part: _on(held.candidates, self.device) for part, held in self._held.items()}

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
        ready, waiting = 0, {part: _Waiting(self.split, part) for part in wanted}
        for clients in self.chunks(order):
            for part, ranks in self._ranked(scorer, clients, wanted, folded).items():
                waiting[part].add(clients, ranks)
            ready += len(clients)
            progress(ready)
        return {part: waiting[part].evaluation() for part in wanted}

    def _ranked(
        self, scorer: Scorer, clients: Tensor, wanted: tuple[Part, ...], folded: FoldedScorer | None
    ) -> dict[Part, Ranks]:
        """Where the held-out items of some clients stand, by part; parts that rank the same scores are ranked together."""
        if folded is None or "test" not in wanted:
            return self._ranks(self._scores(scorer, clients), clients, wanted)
        others: tuple[Part, ...] = tuple(part for part in wanted if part != "test")
        found = self._ranks(self._scores(scorer, clients), clients, others) if others else {}
        came = self._items["validation"].rows(clients)
        return found | self._ranks(self._scores(partial(folded, later=came), clients), clients, ("test",))

    def _ranks(self, scores: Tensor, clients: Tensor, parts: tuple[Part, ...]) -> dict[Part, Ranks]:
        if not compiles(scores):
            return {part: self._plain_ranks(scores, clients, part) for part in parts}
        found = compiled_ranks(
            scores,
            clients,
            [self._items[part].rows(clients) for part in parts],
            [1 if part == "validation" else 2 for part in parts],
            (self.split.training.positives, self.split.validation.items),
            [self._held[part].candidates for part in parts],
        )
        return dict(zip(parts, found, strict=True))

    def _plain_ranks(self, scores: Tensor, clients: Tensor, part: Part) -> Ranks:
        check_finite(scores, clients)
        targets, drawn, sampled = self._items[part].rows(clients), self._drawn[part], None
        if drawn is not None:
            own = drawn[clients.to(drawn.device)].long()
            sampled = candidate_ranks(scores, targets[:, 0], own, clients)
        return Ranks(*full_ranks(scores, targets, self._mask(scores, clients, part), clients), sampled)

    def top(self, scorer: Scorer, k: int = 10, order: Tensor | None = None) -> Tensor:
        """The ``k`` best new items of every client (training items left out), int64 [n, k], -1 is padding.

        With ``order``, of the clients in it, which are scored in that order; the rows of all others are padding.
        """
        lists = torch.full((self.split.data.n_users, k), -1, dtype=torch.int64)
        for clients in self.chunks(order):
            scores = self._scores(scorer, clients)
            if compiles(scores):
                lists[clients] = compiled_top(scores, clients, self.split.training.positives, k)
            else:
                masked = self._mask(scores, clients, "validation")
                lists[clients] = top_items(scores, masked, k, clients).cpu()
        return lists

    def _scores(self, scorer: Scorer, clients: Tensor) -> Tensor:
        scores = scorer(clients)
        if not self._squash:
            return scores
        check_finite(scores, clients)
        return torch.sigmoid(scores.float())

    def _mask(self, scores: Tensor, clients: Tensor, part: Part) -> Tensor:
        masked = torch.zeros(scores.shape[0], scores.shape[1] + 1, dtype=torch.bool, device=scores.device)
        lists = [self._train] if part == "validation" else [self._train, self._items["validation"]]
        for padded in lists:
            items = padded.rows(clients)
            masked.scatter_(1, items.where(items >= 0, scores.shape[1]), True)
        return masked[:, :-1]


class _Waiting:
    """Ranks of a part until there are enough to be worth the many small steps of computing metrics.

    They are copied to one place: small tensors that were kept would lie between the large ones of scores, and memory that has
    gaps everywhere grows by a block of scores with every block of clients.
    """

    def __init__(self, split: Split, part: Part) -> None:
        """None yet."""
        held: HeldOut = getattr(split, part)
        self.protocol, self.n, self.draws = split.protocol, split.data.n_users, held.candidates is not None
        width = max(1, int(held.items.counts.max(initial=0)))
        rows = max(1, min(self.n, SLOTS // width))
        self.who = torch.empty(rows, dtype=torch.int64)
        self.all = torch.empty(2, rows, width, dtype=torch.int64)
        self.sampled = torch.empty(2, rows, dtype=torch.int64)
        self.found, self.size = Evaluation(), 0

    def add(self, clients: Tensor, ranks: Ranks) -> None:
        """Keep those of some clients."""
        start = 0
        while start < len(clients):
            count = min(len(clients) - start, len(self.who) - self.size)
            own, here = slice(start, start + count), slice(self.size, self.size + count)
            self.who[here] = clients[own]
            width = ranks.better.shape[1]
            self.all[0, here], self.all[1, here] = MISSING, 0
            self.all[0, here, :width], self.all[1, here, :width] = ranks.better[own].cpu(), ranks.tied[own].cpu()
            if ranks.sampled is not None:
                self.sampled[0, here], self.sampled[1, here] = (values[own].cpu() for values in ranks.sampled)
            start, self.size = start + count, self.size + count
            if self.size == len(self.who):
                self._compute()

    def evaluation(self) -> Evaluation:
        """Metric values of all clients that were added."""
        self._compute()
        return self.found

    def _compute(self) -> None:
        """Metrics of the ranks that wait."""
        if self.size:
            protocol, here = self.protocol, slice(0, self.size)
            self._keep(
                self.found.full,
                compute(protocol.full_metrics, self.all[0, here], self.all[1, here], ties=protocol.rank_ties),
            )
            if self.draws:
                self._keep(
                    self.found.sampled,
                    compute(protocol.metrics, self.sampled[0, here], self.sampled[1, here], ties=protocol.rank_ties),
                )
        self.size = 0

    def _keep(self, values: Values, new: dict[str, Tensor]) -> None:
        for name, value in new.items():
            values.setdefault(name, np.full(self.n, np.nan))[self.who[: self.size].numpy()] = value.numpy()


def _on(candidates: NDArray[np.int32] | None, device: torch.device) -> Tensor | None:
    return None if candidates is None else torch.from_numpy(candidates).to(device)


def _mean(values: NDArray[np.float64]) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")
