"""The never-interacted items a held-out item is ranked against."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedrec.data.training import Ragged
from fedrec.errors import DataError

_CHUNK = 1024  # clients at a time: bounds the matrix of random keys


def draw_candidates(
    seen: Ragged,
    n_items: int,
    count: int,
    *,
    seed: int,
    stream: int,
    user_rank: NDArray[np.int64],
    item_rank: NDArray[np.int64],
) -> NDArray[np.int32]:
    """``count`` distinct items outside ``seen`` for every client, uniform without replacement, ascending.

    Draws are made in id order (``user_rank``, ``item_rank``), so they do not depend on the order of rows in the file.
    """
    most = int(seen.counts.max(initial=0))
    if n_items - most < count:
        raise DataError(
            f"{count} candidates were asked for, but a client has only {n_items - most} of {n_items} items left that it "
            f"never touched; lower candidates."
        )
    clients = np.argsort(user_rank)
    items = np.argsort(item_rank).astype(np.int32)
    drawn = np.empty((len(seen), count), np.int32)
    for start in range(0, len(seen), _CHUNK):
        chunk = clients[start : start + _CHUNK]
        keys = np.random.default_rng([seed, stream, start]).random((len(chunk), n_items), dtype=np.float32)
        for row, client in enumerate(chunk):
            keys[row, item_rank[seen[client]]] = np.inf
        best = np.argpartition(keys, count, axis=1)[:, :count] if count < n_items else np.argsort(keys, axis=1)
        drawn[chunk] = items[best]
    return np.sort(drawn, axis=1)
