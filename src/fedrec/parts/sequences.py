"""Sequences to learn from: the newest part of a history, in blocks of like length, and who is learned from at a time."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from fedrec.federation.task import Task
from fedrec.sampling import streams

PLACES = {"cpu": 1 << 11, "cuda": 1 << 16}
"""Places of sequences worked on at a time, padding counted: on a CPU what fits its cache."""


def newest(history: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """The newest items of every history [c, W], oldest first, as [c, up to most], and how many; padded with -1."""
    lengths = (history >= 0).sum(1)
    width = min(most, int(lengths.max()) if len(lengths) else 0)
    place = torch.arange(width, device=history.device) + (lengths - most).clamp(min=0)[:, None]
    found = history.gather(1, place.clamp(max=history.shape[1] - 1))
    return found.where(place < lengths[:, None], -1), lengths.clamp(max=most)


def shuffled(history: Tensor, task: Task, clients: Tensor, step: int) -> Tensor:
    """Every history in a random order, another one in every step: items without time have none that could be learned."""
    keys = streams.keys(task.seed, streams.Purpose.SHUFFLE, step, clients.to(history.device))
    random = streams.bits(keys[:, None], history.long()) & torch.iinfo(torch.int64).max
    last = torch.where(history < 0, torch.iinfo(torch.int64).max, random)  # padding stays behind
    return history.gather(1, torch.argsort(last, dim=1, stable=True))


def alike(lengths: Tensor, places: int) -> Iterator[tuple[Tensor, int]]:
    """Positions of sequences of like length, and the longest length among them; empty ones come nowhere."""
    order = torch.sort(lengths, descending=True, stable=True).indices
    ordered, first = lengths[order].tolist(), 0
    while first < len(ordered) and ordered[first] > 0:
        count = max(1, places // ordered[first])
        part = order[first : first + count]
        yield part[lengths[part] > 0], ordered[first]
        first += count


def blocks(task: Task, size: int) -> int:
    """How many blocks of ``size`` clients all that have training items are cut into."""
    return max(1, -(-len(task.able) // size))


def block(task: Task, size: int, step: int) -> Tensor:
    """The clients of a step: every ``blocks`` steps all of them in an order of its own, cut into blocks of like size."""
    epoch, number = divmod(step, blocks(task, size))
    able = task.able
    order = torch.argsort(streams.bits(task.common_key(streams.Purpose.ORDER, epoch), able), stable=True)
    return able[torch.tensor_split(order, blocks(task, size))[number].sort().values]


def drawn(task: Task, share: float, step: int) -> Tensor:
    """The clients of a step where each takes part by itself, with probability ``share``."""
    key = task.common_key(streams.Purpose.PARTICIPATION, step)
    return task.able[streams.uniform(key, task.able) < share]
