"""The embedded data set: made up, the same on every machine, with tastes that can be learnt.

Clients and items have integer vectors over six tastes. A client draws items one after another, without
repeats, in proportion to popularity (long tail) times the cube of the affinity of both vectors, so the items
of others say what it will like next. Only integers and raw PCG64 output take part: both are the same
everywhere, which neither floating-point matrix products nor NumPy's distributions promise.
"""

from __future__ import annotations

import numpy as np
from numpy.random import PCG64
from numpy.typing import NDArray

from fedrec.data.filters import take
from fedrec.data.interactions import Interactions

CLIENTS, ITEMS, TASTES = 500, 400, 6
TERMS = "Made up by fedrec; free to use for anything."
_DRAWS = 1500  # with repeats; enough for every client to reach its number of distinct items
_SHORTEST, _SPREAD = 15, 100
_EPOCH, _YEAR, _TWO_DAYS = 1_700_000_000, 31_536_000, 172_800

Integers = NDArray[np.int64]


def demo() -> Interactions:
    """500 clients with at least 15, on average 40, of 400 items, rated 1 to 5; a client's times differ."""
    bits = PCG64(1)
    items = _vectors(bits, ITEMS, main=6, other=2)
    clients = _vectors(bits, CLIENTS, main=5, other=2)
    second = _below(bits, TASTES, CLIENTS)
    clients[np.arange(CLIENTS), second] += 2 + _below(bits, 4, CLIENTS)
    affinity = clients @ items.T
    place = np.argsort(_below(bits, 2**40, ITEMS), kind="stable")
    popularity = 10**7 // (20 + place) ** 2

    client, item, rank = _draw(bits, popularity * (4 + affinity) ** 3)
    length = _SHORTEST + _below(bits, 1024, CLIENTS) * _below(bits, 1024, CLIENTS) * (_SPREAD + 1) // 2**20
    kept = rank < length[client]
    client, item, rank = client[kept], item[kept], rank[kept]

    rating = 1 + 5 * affinity[client, item] // (affinity.max(axis=1) + 1)[client]
    time = _times(bits, client, rank)
    order = np.lexsort((client, time))
    everything = Interactions(
        client[order].astype(np.int32),
        item[order].astype(np.int32),
        rating[order].astype(np.float64),
        time[order],
        tuple(f"u{k}" for k in range(1, CLIENTS + 1)),
        tuple(f"i{k}" for k in range(1, ITEMS + 1)),
        "demo",
        TERMS,
    )
    return take(everything, np.arange(len(order)))


def _below(bits: PCG64, bound: int | Integers, *shape: int) -> Integers:
    """Whole numbers from 0 to bound - 1; far below 2**64, so the remainder is as good as uniform."""
    raw = bits.random_raw(int(np.prod(shape))).reshape(shape)
    return np.asarray(raw % np.asarray(bound, np.uint64)).astype(np.int64)


def _vectors(bits: PCG64, n: int, main: int, other: int) -> Integers:
    """One strong taste per row, the others weak."""
    vectors = _below(bits, other, n, TASTES)
    vectors[np.arange(n), _below(bits, TASTES, n)] = main + _below(bits, 5, n)
    return vectors


def _draw(bits: PCG64, weights: Integers) -> tuple[Integers, Integers, Integers]:
    """Client, item and rank of every distinct item a client draws in proportion to its weights, in order."""
    total = weights.sum(axis=1)
    ticket = (np.cumsum(total) - total)[:, None] + _below(bits, total[:, None], CLIENTS, _DRAWS)
    cell = np.searchsorted(np.cumsum(weights), ticket.ravel(), side="right")
    _, first = np.unique(cell, return_index=True)
    client, item = np.divmod(cell[np.sort(first)], ITEMS)
    return client, item, np.arange(len(client)) - np.searchsorted(client, client)


def _times(bits: PCG64, client: Integers, rank: Integers) -> Integers:
    """Every client starts some day of a year and goes on at random steps of up to two days."""
    step = 60 + _below(bits, _TWO_DAYS, len(client))
    clock = np.cumsum(step)
    start = _EPOCH + _below(bits, _YEAR, CLIENTS)
    return start[client] + clock - clock[np.flatnonzero(rank == 0)][client]
