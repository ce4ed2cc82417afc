"""A split as named arrays and lists of ids, and back: a saved run needs no copy of the data it was made from."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedrec.data.interactions import Ids, Interactions
from fedrec.data.training import Ragged
from fedrec.protocol.choices import Choices
from fedrec.protocol.holdout import canonical
from fedrec.protocol.split import HeldOut, Split, split_hash, training_view

PARTS = ("training", "validation", "test", "touched")
HISTORY = "history"
"""Training items in the order of time, where there is time."""

Arrays = dict[str, NDArray[np.int32] | NDArray[np.int64]]


class NoSplitError(Exception):
    """Arrays that are no split, or not the one they are said to be."""


def pack_split(split: Split) -> Arrays:
    """Who has which items in which part, and the candidates."""
    lists = (split.training.positives, split.validation.items, split.test.items, split.touched)
    found: Arrays = {}
    for name, part in zip(PARTS, lists, strict=True):
        found |= {f"{name}.offsets": part.offsets, f"{name}.items": part.values}
    for name, held in (("validation", split.validation), ("test", split.test)):
        if held.candidates is not None:
            found[f"{name}.candidates"] = held.candidates
    if (history := split.training.history) is not None:
        found |= {f"{HISTORY}.offsets": history.offsets, f"{HISTORY}.items": history.values}
    return found


def unpack_split(
    arrays: Arrays, users: Ids, items: Ids, protocol: Choices, *, seed: int, name: str, digest: str
) -> Split:
    """The split of these arrays, which must have the hash ``digest``.

    Its data are the rows of its parts, without ratings and times: enough to train, judge and recommend, not to split anew.
    """
    n, m = len(users), len(items)
    try:
        train, validation, test, touched = (_lists(arrays, part, n, m) for part in PARTS)
        history = _lists(arrays, HISTORY, n, m) if f"{HISTORY}.items" in arrays else None
        drawn = [arrays.get(f"{part}.candidates") for part in ("validation", "test")]
    except KeyError as error:
        raise NoSplitError(f"{error.args[0]} is missing") from None
    if any(found is not None and (found.ndim != 2 or len(found) != n or not _within(found, m)) for found in drawn):
        raise NoSplitError("candidates do not fit users and items")
    candidates = [None if found is None else found.astype(np.int32) for found in drawn]
    rows = [
        np.concatenate([getattr(part, kind) for part in (train, validation, test)]) for kind in ("owners", "values")
    ]
    data = Interactions(rows[0].astype(np.int32), rows[1].astype(np.int32), None, None, users, items, name)
    ranks = canonical(users), canonical(items)
    if split_hash(data, protocol, seed, ranks, (train, validation, test), candidates) != digest:
        raise NoSplitError("its hash is another one")
    held = HeldOut(validation, candidates[0]), HeldOut(test, candidates[1])
    everything = Ragged.build(rows[0], rows[1], n)
    view = training_view(data, train, everything, protocol, history)
    return Split(protocol, seed, data, view, *held, touched, digest)


def _lists(arrays: Arrays, name: str, n: int, m: int) -> Ragged:
    offsets, values = arrays[f"{name}.offsets"].astype(np.int64), arrays[f"{name}.items"].astype(np.int32)
    sound = (
        offsets.shape == (n + 1,)
        and offsets[0] == 0
        and offsets[-1] == len(values)
        and bool((np.diff(offsets) >= 0).all())
    )
    if values.ndim != 1 or not sound or not _within(values, m):
        raise NoSplitError(f"{name} does not fit users and items")
    return Ragged(offsets, values)


def _within(values: NDArray[np.integer], m: int) -> bool:
    return not values.size or (values.min() >= 0 and values.max() < m)
