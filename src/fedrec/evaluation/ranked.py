"""Ranks of a block of clients by whatever is fastest for their scores: compiled code over rows, or torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrec.compute import dispatch
from fedrec.compute.cpu import for_clients
from fedrec.data.training import Ragged
from fedrec.evaluation.cpu_ranking import rank_range, top_range
from fedrec.evaluation.ranking import MISSING, check_finite

WHOLE = 1 << 26
"""Entries of a padded table up to which it is made once for all clients."""


class Padded:
    """Lists of items as int64 rows padded with -1, for any clients."""

    def __init__(self, lists: Ragged, device: torch.device) -> None:
        """Nothing is padded yet."""
        self.lists, self.device = lists, device
        self._whole: Tensor | None = None

    def rows(self, clients: Tensor) -> Tensor:
        """The lists of these clients, [c, widest]."""
        lists, who = self.lists, clients.cpu().numpy()
        if self._whole is None and len(lists) * max(1, int(lists.counts.max(initial=0))) <= WHOLE:
            self._whole = self._pad(np.arange(len(lists))).to(self.device)
        return self._pad(who).to(self.device) if self._whole is None else self._whole[clients.to(self.device)]

    def _pad(self, who: NDArray[np.int64]) -> Tensor:
        starts, counts = self.lists.offsets[who], self.lists.counts[who]
        table = np.full((len(who), max(1, int(counts.max(initial=0)))), -1, np.int64)
        position = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        table[np.repeat(np.arange(len(who)), counts), position] = self.lists.values[
            np.repeat(starts, counts) + position
        ]
        return torch.from_numpy(table)


@dataclass(frozen=True, eq=False)
class Ranks:
    """How many items stand above each held-out one of some clients and level with it, among all [c, T], and among candidates [c]."""

    better: Tensor
    tied: Tensor
    sampled: tuple[Tensor, Tensor] | None


def compiles(scores: Tensor) -> bool:
    """Whether compiled code ranks these scores."""
    return dispatch.compiled_for(scores) == "cpu"


def compiled_ranks(
    scores: Tensor,
    clients: Tensor,
    targets: Sequence[Tensor],
    depths: Sequence[int],
    hidden: Sequence[Ragged],
    candidates: Sequence[NDArray[np.int32] | None],
) -> list[Ranks]:
    """Ranks of several parts in one pass; the items of the first so many ``hidden`` lists are left out of a part's ranking."""
    c, wanted = len(clients), torch.cat(list(targets), 1).contiguous()
    columns = np.cumsum([0, *(part.shape[1] for part in targets)])
    above, level = (np.zeros(wanted.shape, np.int64) for _ in range(2))
    better, tied = (np.full((len(targets), c), value, np.int64) for value in (MISSING, 0))
    drawn = tuple(_constant(np.zeros((0, 0), np.int32) if found is None else found) for found in candidates)
    inputs = clients.numpy(), wanted.numpy(), columns, np.array(depths), tuple(map(_arrays, hidden)), drawn
    finite = _over_rows(rank_range, scores, clients, inputs, (above, level, better, tied))
    if not finite.all():
        check_finite(scores, clients)
    found = []
    for part, target in enumerate(targets):
        own = slice(columns[part], columns[part + 1])
        real = target >= 0
        counts = torch.from_numpy(above[:, own]), torch.from_numpy(level[:, own])
        sampled = None if candidates[part] is None else (torch.from_numpy(better[part]), torch.from_numpy(tied[part]))
        found.append(Ranks(counts[0].where(real, MISSING), (counts[1] - 1).where(real, 0), sampled))
    return found


def compiled_top(scores: Tensor, clients: Tensor, hidden: Ragged, k: int) -> Tensor:
    """The ``k`` best items of every client outside its list, int64 [c, k], -1 is padding."""
    out = np.empty((len(clients), k), np.int64)
    finite = _over_rows(top_range, scores, clients, (clients.numpy(), *_arrays(hidden)), (out,))
    if not finite.all():
        check_finite(scores, clients)
    return torch.from_numpy(out)


def _over_rows(
    kernel: Callable[..., None], scores: Tensor, clients: Tensor, inputs: tuple[Any, ...], outputs: tuple[Any, ...]
) -> NDArray[np.bool_]:
    """Run a kernel over rows of scores on all threads; says which rows are finite."""
    rows, finite = scores.detach().contiguous().numpy(), np.ones(len(clients), np.bool_)
    costs = np.full(len(clients), scores.shape[1])
    for_clients(lambda first, last: kernel(first, last, rows, *inputs, *outputs, finite), costs, unit=0.5)
    return finite


def _arrays(lists: Ragged) -> tuple[NDArray[Any], NDArray[Any]]:
    return _constant(lists.offsets), _constant(lists.values)


def _constant(values: NDArray[Any]) -> NDArray[Any]:
    """As compiled code takes several of them: all alike, so none may be changed."""
    seen = np.ascontiguousarray(values).view()
    seen.flags.writeable = False
    return seen
