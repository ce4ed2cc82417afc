"""The never-interacted items a held-out item is ranked against."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fedrec.data.training import Ragged
from fedrec.errors import OptionError

_CHUNK = 1024  # clients that share a generator
_KEYS = 1 << 21  # random keys held at a time
_KEYS_IN_ALL = 1 << 28  # clients times items up to which every item of every client gets a random key


def draw_candidates(
    seen: Ragged,
    n_items: int,
    count: int,
    *,
    seed: int,
    stream: int,
    user_rank: NDArray[np.int64],
    item_rank: NDArray[np.int64],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> NDArray[np.int32]:
    """``count`` distinct items outside ``seen`` for every client, uniform without replacement, ascending.

    Draws are made in id order (``user_rank``, ``item_rank``), so they do not depend on the order of rows in the file.
    ``progress`` is told how many of all clients have their candidates.
    """
    most = int(seen.counts.max(initial=0))
    if n_items - most < count:
        raise OptionError(
            f"{count} candidates were asked for, but a client has only {n_items - most} of {n_items} items left that it "
            "never touched",
            (f"ask for {n_items - most} or less, 0 being full ranking alone", "candidates", n_items - most),
        )
    clients, items = np.argsort(user_rank), np.argsort(item_rank).astype(np.int32)
    pairs = np.sort(user_rank[seen.owners] * n_items + item_rank[seen.values])
    draw = _by_keys if _keys_for_all(len(seen), n_items, count) else _by_trial
    drawn = np.empty((len(seen), count), np.int32)
    for start in range(0, len(seen), _CHUNK):
        chunk = clients[start : start + _CHUNK]
        first, last = np.searchsorted(pairs, [start * n_items, (start + len(chunk)) * n_items])
        taken = pairs[first:last] - start * n_items
        best = draw(np.random.default_rng([seed, stream, start]), taken, len(chunk), n_items, count)
        drawn[chunk] = np.sort(items[best], axis=1)
        progress(start + len(chunk), len(seen))
    return drawn


def _keys_for_all(n_clients: int, n_items: int, count: int) -> bool:
    """Whether a key per client and item is affordable, or the catalogue so small that trials would often be in vain."""
    return n_clients * n_items <= _KEYS_IN_ALL or n_items < 16 * count


def _by_keys(rng: np.random.Generator, taken: NDArray[np.int64], n: int, n_items: int, count: int) -> NDArray[np.int64]:
    """The items with the smallest random keys, for each of ``n`` clients; among equal keys the earlier item.

    ``taken`` lists client * n_items + item of what may not be drawn, ascending.
    """
    drawn = np.empty((n, count), np.int64)
    step = max(1, _KEYS // n_items)
    for start in range(0, n, step):
        rows = min(step, n - start)
        keys = rng.random(rows * n_items, dtype=np.float32)
        first, last = np.searchsorted(taken, [start * n_items, (start + rows) * n_items])
        keys[taken[first:last] - start * n_items] = np.inf
        # Only keys below a limit are sorted, which nearly always are enough.
        free = n_items - int(np.bincount(taken[first:last] // n_items - start, minlength=1).max())
        small = np.flatnonzero(keys < (count + 6 * count**0.5 + 8) / free)
        if np.bincount(small // n_items, minlength=rows).min() < count:
            small = np.flatnonzero(np.isfinite(keys))
        owner = small // n_items
        order = np.lexsort((keys[small], owner))  # stable, so equal keys stay in the order of items
        place = np.arange(len(small)) - np.searchsorted(owner, owner)
        drawn[start : start + rows] = (small[order[place < count]] % n_items).reshape(rows, count)
    return drawn


def _by_trial(
    rng: np.random.Generator, taken: NDArray[np.int64], n: int, n_items: int, count: int
) -> NDArray[np.int64]:
    """The first ``count`` distinct items outside ``taken`` of a row of random items, for each of ``n`` clients.

    A row that has too few is drawn again, longer: which items come first is independent of how many are new.
    """
    drawn = np.empty((n, count), np.int64)
    free = n_items - np.bincount(taken // n_items, minlength=n)
    crowded = free < n_items // 2
    for client in np.flatnonzero(crowded):
        own = taken[slice(*np.searchsorted(taken, [client * n_items, (client + 1) * n_items]))] - client * n_items
        drawn[client] = rng.choice(np.setdiff1d(np.arange(n_items), own), count, replace=False)
    open_, width = np.flatnonzero(~crowded), count + count // 8 + 16
    while len(open_):
        # Item and place in one number, sorted: repetitions stand together, the earliest first.
        order = np.sort(rng.integers(0, n_items, (len(open_), width)) * width + np.arange(width), axis=1)
        item, place = order // width, order % width
        fine = np.ones(order.shape, np.bool_)
        fine[:, 1:] = item[:, 1:] != item[:, :-1]
        if len(taken):
            pair = open_[:, None] * n_items + item
            near = np.minimum(np.searchsorted(taken, pair), len(taken) - 1)
            fine &= taken[near] != pair
        enough = fine.sum(1) >= count
        by_place = np.empty_like(item)
        np.put_along_axis(by_place, place, np.where(fine, item, -1), axis=1)
        by_place = by_place[enough]
        first = (by_place >= 0) & (np.cumsum(by_place >= 0, axis=1) <= count)
        drawn[open_[enough]] = by_place[first].reshape(-1, count)
        open_, width = open_[~enough], 2 * width
    return drawn
