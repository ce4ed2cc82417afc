"""Lists of recommendations from scores: for one person or for many, among items that may be chosen."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrec.data.training import Ragged
from fedrec.errors import ConfigError, DataError, brief
from fedrec.evaluation.ranking import top_items
from fedrec.federation.trainer import Trainer

Id = str | int
AT_ONCE = 1 << 24
"""Scores held at a time."""


@dataclass(frozen=True, eq=False)
class Shelf:
    """The items of a model by their original ids."""

    name: str
    ids: Sequence[Id]
    index: Mapping[Id, int]

    def number(self, item: Id) -> int:
        """Of an item; an id may be a whole number written as text."""
        return code_of("item", item, self.index, f"{self.name} has")

    def numbers(self, items: Iterable[Id]) -> Tensor:
        """Of several, each once: where an item is named twice, the last place counts."""
        found = [self.number(item) for item in items]
        return torch.tensor(list(dict.fromkeys(reversed(found)))[::-1], dtype=torch.int64)

    def closed(self, only: Iterable[Id] | None, without: Iterable[Id]) -> Tensor | None:
        """[m]: which items may not be recommended; None where all may."""
        without = list(without)
        if only is None and not without:
            return None
        found = torch.zeros(len(self.ids), dtype=torch.bool)
        if only is not None:
            found[:] = True
            found[self.numbers(only)] = False
        found[self.numbers(without)] = True
        return found

    def named(self, scores: Tensor, items: Tensor) -> list[tuple[Id, float]]:
        """Items [k] (-1: none) with their scores, by original ids."""
        return [(self.ids[i], float(scores[i])) for i in items.tolist() if i >= 0]


def code_of(kind: str, key: Id, index: Mapping[Id, int], owner: str) -> int:
    """The number of an original id."""
    asked = key
    if key not in index:
        key = int(key) if isinstance(key, str) and re.fullmatch(r"-?[0-9]{1,18}", key) else str(key)
    if key not in index:
        example = f"give one of its ids, such as '{brief(next(iter(index)))}'" if index else "there are none"
        raise DataError(f"{owner} no {kind} '{brief(asked)}'; {example}.")
    return index[key]


def check_length(k: int) -> int:
    """A list has one item at least."""
    if k < 1:
        raise ConfigError(f"a list of {k} items was asked for; use k of 1 or more.")
    return k


def best(scores: Tensor, seen: Tensor, k: int, closed: Tensor | None) -> Tensor:
    """The ``k`` best items [k] for scores [m] that are neither ``seen`` [w] nor closed [m]; -1 where there are fewer."""
    masked = torch.zeros_like(scores, dtype=torch.bool) if closed is None else closed.clone()
    masked[seen] = True
    return top_items(scores[None], masked[None], min(check_length(k), len(scores)))[0]


@dataclass(frozen=True, eq=False)
class Lists:
    """Best items of some clients: numbers [c], items [c, k] with -1 where there are fewer, and their scores."""

    clients: NDArray[np.int64]
    items: NDArray[np.int64]
    scores: NDArray[np.float64]


def lists(
    trainer: Trainer, clients: Sequence[int], touched: Ragged, n_items: int, k: int, closed: Tensor | None
) -> Iterator[Lists]:
    """Lists of many clients, in their order, some at a time; what a client has touched is left out."""
    step = max(1, AT_ONCE // max(1, n_items))
    for first in range(0, len(clients), step):
        chosen = np.asarray(clients[first : first + step], np.int64)
        scores = trainer.scores(torch.from_numpy(chosen)).cpu()
        masked = torch.zeros(scores.shape, dtype=torch.bool) if closed is None else closed.repeat(len(chosen), 1)
        counts = touched.counts[chosen]
        owners = np.repeat(np.arange(len(chosen)), counts)
        within = np.arange(len(owners)) - np.repeat(counts.cumsum() - counts, counts)
        masked[owners, touched.values[touched.offsets[chosen][owners] + within].astype(np.int64)] = True
        items = top_items(scores, masked, min(check_length(k), n_items))
        values = scores.double().gather(1, items.clamp(min=0))
        yield Lists(chosen, items.numpy(), values.numpy())
