"""Which client trains which of several nested embedding sizes: by rank, by a budget, or by hand.

Every function returns the index of each client's size in ``sizes``, [n] int64; 0 is the smallest.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedrec.errors import ConfigError
from fedrec.federation.task import Task
from fedrec.methods.hetefedrec.config import HeteFedRecConfig
from fedrec.sampling import streams


def by_ratio(values: Tensor, ratio: Sequence[float]) -> Tensor:
    """The lowest ``values`` get the smallest size, in shares ``ratio``; ties go by client number."""
    n, total, done = len(values), float(sum(ratio)), 0.0
    group = torch.zeros(n, dtype=torch.int64)
    order = torch.sort(values.cpu(), stable=True).indices
    for index, share in enumerate(ratio):
        group[order[round(done / total * n) :]] = index
        done += share
    return group


def at_random(n: int, ratio: Sequence[float], seed: int) -> Tensor:
    """Shares ``ratio`` of the clients, whatever their data."""
    keys = streams.keys(seed, streams.Purpose.OTHER, 0, torch.arange(n))
    return by_ratio(streams.uniform(keys, torch.zeros(n, dtype=torch.int64)), ratio)


def largest_within(needs: Sequence[float], budget: Tensor) -> Tensor:
    """The largest size whose need (ascending) the client's budget covers; -1 where it covers none."""
    return torch.searchsorted(torch.tensor(needs, dtype=torch.float64), budget.cpu().double(), right=True) - 1


def by_interactions(counts: Tensor, sizes: Sequence[int], per_column: float) -> Tensor:
    """The largest size with at least ``per_column`` training items per column, or else the smallest."""
    return largest_within([size * per_column for size in sizes], counts).clamp(min=0)


def by_memory(megabytes: Tensor, needs: Sequence[int]) -> Tensor:
    """The largest size whose bytes fit the client's stated memory; one that nothing fits is an error."""
    group = largest_within([float(need) for need in needs], megabytes.double() * 1e6)
    if bool((group < 0).any()):
        client = int((group < 0).nonzero()[0, 0])
        raise ConfigError(
            f"the smallest size needs {needs[0] / 1e6:.3g} MB, but client {client} states {float(megabytes[client]):g} MB; "
            "raise memory_mb or add a smaller size."
        )
    return group


def by_hand(assignment: Sequence[int], sizes: Sequence[int], n: int) -> Tensor:
    """The size the user gave every client."""
    if len(assignment) != n:
        raise ConfigError(f"assignment names {len(assignment)} sizes for {n} clients; give one size per client.")
    return torch.tensor([sizes.index(size) for size in assignment], dtype=torch.int64)


def pick(config: HeteFedRecConfig, task: Task, needs: Sequence[int]) -> Tensor:
    """The sizes that HeteFedRec's settings pick; ``needs`` are the bytes a client of each size holds."""
    c, n = config, task.n_clients
    if c.sizes[-1] > task.n_items:
        raise ConfigError(f"size {c.sizes[-1]} is above the {task.n_items} items of the data; choose smaller sizes.")
    if c.sizing == "ratio":
        return by_ratio(task.counts, c.shares)
    if c.sizing == "random":
        return at_random(n, c.shares, task.seed)
    if c.sizing == "interactions":
        return by_interactions(task.counts, c.sizes, c.items_per_column)
    if c.sizing == "assignment":
        return by_hand(c.assignment or (), c.sizes, n)
    stated = torch.as_tensor(c.memory_mb, dtype=torch.float64)
    if stated.dim() and len(stated) != n:
        raise ConfigError(f"memory_mb names {len(stated)} clients of {n}; give one number, or one per client.")
    return by_memory(stated.expand(n), needs)
