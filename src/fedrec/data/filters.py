"""Which rows take part, and the numbers that describe a data set."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedrec.data.filtered import Filtered, Reason
from fedrec.data.filtered import count as counted
from fedrec.data.interactions import Ids, Interactions
from fedrec.errors import ConfigError, OptionError, unknown

Duplicates = Literal["keep", "merge"]
Count = Literal["rows", "pairs"]


def filter_interactions(
    data: Interactions,
    *,
    min_per_user: int = 0,
    count: Count = "rows",
    positive_only: bool = False,
    duplicates: Duplicates = "keep",
) -> Interactions:
    """The rows that remain, in their order; ids are coded anew in order of first appearance.

    First go rows with a rating of 0 (``positive_only``; where there are no ratings all rows stay, for the row
    itself is the observation). Then ``"merge"`` leaves the earliest row of every (user, item) pair: the
    oldest, and the first in the file among equals. Last go users with fewer than ``min_per_user`` of the
    remaining rows, or of their distinct pairs if ``count="pairs"``.
    """
    return filter_and_tell(
        data, min_per_user=min_per_user, count=count, positive_only=positive_only, duplicates=duplicates
    )[0]


def filter_and_tell(
    data: Interactions,
    *,
    min_per_user: int = 0,
    count: Count = "rows",
    positive_only: bool = False,
    duplicates: Duplicates = "keep",
) -> tuple[Interactions, Filtered]:
    """What ``filter_interactions`` leaves, and what it took away and why."""
    if duplicates not in ("keep", "merge"):
        raise ConfigError(unknown("duplicates rule", duplicates, ("keep", "merge")))
    if count not in ("rows", "pairs"):
        raise ConfigError(unknown("count", count, ("rows", "pairs")))
    rows, left, reasons = np.arange(len(data)), counted(data), []

    def keep(some: NDArray[np.int64], why: str, option: str | None) -> NDArray[np.int64]:
        nonlocal left
        if len(some) < left.rows:
            now = counted(data, some)
            reasons.append(Reason(why=why, option=option, dropped=left - now))
            left = now
        return some

    if positive_only and data.ratings is not None:
        rows = keep(np.flatnonzero(data.ratings > 0), "rows rated 0", None)
    if duplicates == "merge":
        rows = keep(_earliest_of_pairs(data, rows), "repeated rows of a user and an item", "duplicates")
    pairs = _earliest_of_pairs(data, rows) if count == "pairs" else rows
    per_user = np.bincount(data.users[_all_or(pairs, data)], minlength=data.n_users)
    enough = (per_user >= min_per_user)[data.users[_all_or(rows, data)]]
    rows = keep(
        rows if enough.all() else rows[enough], f"users with fewer than {min_per_user} {count}", "min_interactions"
    )
    given = counted(data)
    filtered = Filtered(given=given, kept=left, dropped=given - left, reasons=reasons)
    if not len(rows):
        few = any(reason.option == "min_interactions" for reason in reasons)
        way = ("relax the filter", "min_interactions", "N") if few else ("read no such column", "rating", None)
        raise OptionError(f"{data.name}: no row is left after filtering: {filtered}", way)
    return take(data, _all_or(rows, data)), filtered


def stats(data: Interactions) -> dict[str, Any]:
    """Counts of a data set; ``newest_ties`` counts users whose newest timestamp stands in several rows."""
    per_user = np.bincount(data.users, minlength=data.n_users)
    ordered = _pairs(data, slice(None))
    ordered.sort()  # np.unique hashes, which takes many times as long
    pairs = len(data) and 1 + int(np.count_nonzero(ordered[1:] != ordered[:-1]))
    return {
        "users": data.n_users,
        "items": data.n_items,
        "rows": len(data),
        "distinct_pairs": pairs,
        "sparsity": 1.0 - pairs / (data.n_users * data.n_items),
        "min_per_user": int(per_user.min()),
        "mean_per_user": float(per_user.mean()),
        "max_per_user": int(per_user.max()),
        "has_timestamps": data.timestamps is not None,
        "newest_ties": _newest_ties(data),
    }


def _all_or(rows: NDArray[np.int64], data: Interactions) -> NDArray[np.int64] | slice:
    """Rows in their order, as a slice where they are all: what a slice takes is no copy."""
    return rows if len(rows) < len(data) else slice(None)


def _pairs(data: Interactions, rows: NDArray[np.int64] | slice) -> NDArray[np.int64]:
    return data.users[rows].astype(np.int64) * data.n_items + data.items[rows]


def _earliest_of_pairs(data: Interactions, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    pairs = _pairs(data, rows)
    ordered = np.sort(pairs)
    repeated = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if not len(repeated):
        return rows
    # Only rows of repeated pairs, usually few, are put into the order of time.
    near = np.minimum(np.searchsorted(repeated, pairs), len(repeated) - 1)
    again = np.flatnonzero(repeated[near] == pairs)
    if data.timestamps is not None:
        again = again[np.argsort(data.timestamps[rows[again]], kind="stable")]
    _, first = np.unique(pairs[again], return_index=True)
    kept = np.ones(len(rows), np.bool_)
    kept[again] = False
    kept[again[first]] = True
    return rows[kept]


def take(data: Interactions, rows: NDArray[np.int64] | slice) -> Interactions:
    """The given rows, with ids coded anew in order of first appearance."""
    users, user_ids = _recode(data.users[rows], data.user_ids)
    items, item_ids = _recode(data.items[rows], data.item_ids)
    ratings = None if data.ratings is None else data.ratings[rows]
    timestamps = None if data.timestamps is None else data.timestamps[rows]
    return Interactions(
        users, items, ratings, timestamps, user_ids, item_ids, data.name, data.terms, data.notes, data.about
    )


def _recode(codes: NDArray[np.int32], ids: Ids) -> tuple[NDArray[np.int32], Ids]:
    first = np.full(len(ids), -1)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)  # of repeated places the last assignment stays
    old = np.flatnonzero(first >= 0)
    old = old[np.argsort(first[old])]
    if np.array_equal(old, np.arange(len(ids))):
        return np.ascontiguousarray(codes, np.int32), ids
    new = np.empty(len(ids), np.int32)
    new[old] = np.arange(len(old), dtype=np.int32)
    kept: Any = tuple(ids[code] for code in old.tolist())
    return new[codes], kept


def _newest_ties(data: Interactions) -> int | None:
    if data.timestamps is None:
        return None
    newest = np.full(data.n_users, np.iinfo(np.int64).min)
    np.maximum.at(newest, data.users, data.timestamps)
    at_newest = data.users[data.timestamps == newest[data.users]]
    return int((np.bincount(at_newest, minlength=data.n_users) > 1).sum())
