"""Interactions nobody made, of any shape: what is large can be measured without being fetched."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedrec.data.interactions import Interactions
from fedrec.errors import ConfigError

FEWEST = 20
"""Rows of the smallest client, where there are enough for all."""
EXACT = 1 << 30
"""Clients times items up to which every pair gets a random key."""


def synthetic(clients: int, items: int, rows: int, *, seed: int = 0) -> Interactions:
    """Interactions of about that shape: client sizes and item popularity are long-tailed, as in MovieLens; times are random.

    Each client has distinct items, drawn in proportion to popularity, and every item appears.
    """
    if min(clients, items) < 2 or not 2 * clients <= rows <= clients * items // 2:
        raise ConfigError(
            f"{clients:,} clients, {items:,} items and {rows:,} rows are no shape that can be made up; give between two rows for "
            "every client and half of all pairs."
        )
    rng = np.random.default_rng(seed)
    size = np.exp(rng.normal(0, 1.1, clients))
    least = min(FEWEST, max(1, 2 * rows // (3 * clients)))
    counts = np.clip(least + size / size.sum() * (rows - least * clients), least, items // 2).astype(np.int64)
    weight = 1 / (np.arange(items) + 20.0)
    draw = _by_keys if clients * items <= EXACT else _by_trial
    picked = draw(rng, counts, weight)
    users = np.repeat(np.arange(clients), counts).astype(np.int32)
    # Every item appears once at least, so that the number of items is the one asked for.
    picked[rng.permutation(len(picked))[:items]] = np.arange(items)
    pairs = users.astype(np.int64) * items + picked
    order = np.argsort(pairs, kind="stable")
    first = np.ones(len(pairs), np.bool_)
    first[order[1:]] = pairs[order[1:]] != pairs[order[:-1]]
    users, picked = users[first], picked[first]
    times = rng.permutation(len(users))
    return Interactions(users, picked, None, times, tuple(range(clients)), tuple(range(items)), f"{clients}x{items}")


def _by_keys(rng: np.random.Generator, counts: NDArray[np.int64], weight: NDArray[np.float64]) -> NDArray[np.int32]:
    """The items with the smallest exponential keys are a weighted sample without replacement."""
    clients, items, chosen = len(counts), len(weight), []
    for part in np.array_split(np.arange(clients), max(1, clients * items >> 24)):
        keys = rng.exponential(size=(len(part), items)) / weight
        order = np.argsort(keys, axis=1)
        chosen += [order[row, : counts[client]] for row, client in enumerate(part)]
    return np.concatenate(chosen).astype(np.int32)


def _by_trial(rng: np.random.Generator, counts: NDArray[np.int64], weight: NDArray[np.float64]) -> NDArray[np.int32]:
    """Weighted draws, of which those that a client already has are made again: the same sample, in a pass or few over all rows."""
    items, reach = len(weight), np.cumsum(weight / weight.sum())
    owner = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    drawn = np.empty(len(owner), np.int64)
    open_ = np.arange(len(owner))
    while len(open_):
        drawn[open_] = np.minimum(np.searchsorted(reach, rng.random(len(open_))), items - 1)
        pairs = owner * items + drawn
        order = np.argsort(pairs, kind="stable")
        again = np.flatnonzero(pairs[order[1:]] == pairs[order[:-1]]) + 1
        open_ = np.sort(order[again])
    return drawn.astype(np.int32)
