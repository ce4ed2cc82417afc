"""Which rows are held out: every row of a data set gets a part, train, validation or test."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedrec.data.interactions import Interactions
from fedrec.errors import DataError
from fedrec.protocol.choices import Choices

TRAIN, VALIDATION, TEST = 0, 1, 2


def canonical(ids: tuple[str, ...] | tuple[int, ...]) -> NDArray[np.int64]:
    """Rank of every id in sorted order: a numbering that does not depend on the order of rows in a file."""
    order = sorted(range(len(ids)), key=ids.__getitem__)
    rank = np.empty(len(ids), np.int64)
    rank[order] = np.arange(len(ids))
    return rank


def time_order(data: Interactions, protocol: Choices, seed: int) -> NDArray[np.int64]:
    """Rows sorted by user, each user's rows oldest first, under the protocol's tie rule."""
    position = np.arange(len(data))
    timed = data.timestamps is not None
    if protocol.order == "random" or (not timed and protocol.untimed == "random"):
        # Draws are attached to (user, item) in id order, so that a shuffled file gives the same split.
        users, items = canonical(data.user_ids)[data.users], canonical(data.item_ids)[data.items]
        key = np.empty(len(data))
        key[np.lexsort((position, items, users))] = np.random.default_rng([seed, 1]).random(len(data))
        return np.lexsort((key, data.users))
    if timed:
        time: NDArray[np.int64] = np.asarray(data.timestamps)
    else:
        time = data.items.astype(np.int64) if protocol.untimed == "item" else np.zeros(len(data), np.int64)
    if protocol.ties == "item_id":
        return np.lexsort((canonical(data.item_ids)[data.items], time, data.users))
    if protocol.ties == "first" and timed:
        return len(data) - 1 - _by_user_and_time(data.users[::-1], time[::-1])
    return _by_user_and_time(data.users, time)


def _by_user_and_time(users: NDArray[np.int32], time: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows by user and time, equal ones in the order given."""
    first, last = int(time.min()), int(time.max())
    span = last - first + 1
    if span * (int(users.max()) + 1) < 2**63:  # one sort of one number per row, where that number fits
        return np.argsort(users * np.int64(span) + (time - first), kind="stable")
    return np.lexsort((time, users))


def parts(data: Interactions, protocol: Choices, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """The row order (by user, oldest first) and the part of every row in that order."""
    order = time_order(data, protocol, seed)
    counts = np.bincount(data.users, minlength=data.n_users)
    ends = np.repeat(np.cumsum(counts), counts)
    from_end = ends - np.arange(len(data))  # 1 for a user's newest row
    part = np.zeros(len(data), np.int8)
    if protocol.holdout == "leave-one-out":
        if counts.min() < 3:
            raise DataError(
                f"{data.name}: leave-one-out needs 3 rows per user, but user {data.user_ids[int(counts.argmin())]} has "
                f"{counts.min()}; raise min_interactions."
            )
        part[from_end == 2], part[from_end == 1] = VALIDATION, TEST
    elif protocol.holdout == "ratio":
        # The epsilon keeps 0.2 * 15 at 3 although the product is 3.0000000000000004 or 2.9999999999999996.
        test = np.floor(protocol.test_ratio * counts + 1e-9).astype(np.int64)
        validation = np.floor(protocol.validation_ratio * (counts - test) + 1e-9).astype(np.int64)
        test, validation = np.repeat(test, counts), np.repeat(validation, counts)
        part[from_end <= test + validation] = VALIDATION
        part[from_end <= test] = TEST
    elif protocol.holdout == "global-time":
        if data.timestamps is None:
            raise DataError(f"{data.name} has no timestamps, so it cannot be split by global time; use holdout=ratio.")
        time = data.timestamps[order]
        last = np.quantile(data.timestamps, 1 - protocol.test_ratio, method="lower")
        kept = data.timestamps[data.timestamps <= last]
        middle = np.quantile(kept, 1 - protocol.validation_ratio, method="lower")
        part[time > middle], part[time > last] = VALIDATION, TEST
    return order, part
