"""Every client's training items in the order of time, for methods that learn from what comes after what.

Rows of one moment have no order of their own, and the order of rows in a file can be an artefact: they are shuffled, by random
numbers that depend on seed, user and item only, so that a file gives the same histories however its rows are ordered.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from fedrec.data.interactions import Interactions
from fedrec.data.training import Ragged
from fedrec.sampling import streams

Ranks = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Of every user and every item: its place among the sorted ids."""


def histories(data: Interactions, rows: NDArray[np.int64], ranks: Ranks, seed: int, *, repeated: bool) -> Ragged | None:
    """Distinct items of ``rows`` per user, oldest first; None where the data have no time.

    ``rows`` are grouped by user. Where rows may be ``repeated``, an item counts where it came first.
    """
    if data.timestamps is None:
        return None
    users, time = data.users[rows], data.timestamps[rows]
    if bool(((users[1:] == users[:-1]) & (time[1:] < time[:-1])).any()):
        rows = rows[np.lexsort((time, users))]
        users, time = data.users[rows], data.timestamps[rows]
    items = data.items[rows].copy()
    level = (users[1:] == users[:-1]) & (time[1:] == time[:-1])
    tied = np.flatnonzero(np.append(level, False) | np.append(False, level))
    if len(tied):
        key = _keys(ranks[0][users[tied]], ranks[1][items[tied]], seed)
        items[tied] = items[tied][np.lexsort((key, time[tied], users[tied]))]
    if repeated:
        first = np.sort(np.unique(users.astype(np.int64) * data.n_items + items, return_index=True)[1])
        users, items = users[first], items[first]
    return Ragged.build(users, items, data.n_users)


def _keys(users: NDArray[np.int64], items: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    keys = streams.keys(seed, streams.Purpose.ORDER, 0, torch.from_numpy(users))
    found: NDArray[np.int64] = streams.bits(keys, torch.from_numpy(items)).numpy()
    return found
