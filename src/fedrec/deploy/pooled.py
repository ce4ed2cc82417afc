"""The split that sites would have together: for comparing a federation with a simulation, where all data may meet."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedrec.data.interactions import Interactions
from fedrec.data.training import Ragged, TrainingView
from fedrec.errors import DataError
from fedrec.protocol.holdout import canonical
from fedrec.protocol.split import HeldOut, Split, split_hash


def pooled(splits: list[Split], name: str = "pooled") -> Split:
    """One split of all users, in the order of the sites; items are those of their common catalogue."""
    first = splits[0]
    if any(one.data.item_ids != first.data.item_ids or one.protocol != first.protocol for one in splits):
        raise DataError("splits of different catalogues or protocols cannot be pooled; use the sites' of one run.")
    starts = np.cumsum([0, *(one.data.n_users for one in splits)])
    data = Interactions(
        np.concatenate([one.data.users + start for one, start in zip(splits, starts, strict=False)]).astype(np.int32),
        np.concatenate([one.data.items for one in splits]),
        None,
        None,
        tuple(f"{at}/{user}" for at, one in enumerate(splits) for user in one.data.user_ids),
        first.data.item_ids,
        name,
    )
    histories = [one.training.history for one in splits if one.training.history is not None]
    view = TrainingView(
        data.n_users,
        data.n_items,
        _joined([one.training.positives for one in splits]),
        _joined([one.training.excluded for one in splits]),
        _joined(histories) if len(histories) == len(splits) else None,
    )
    validation, test = (_held([getattr(one, part) for one in splits]) for part in ("validation", "test"))
    ranks = canonical(data.user_ids), canonical(data.item_ids)
    held = (view.positives, validation.items, test.items)
    drawn = [validation.candidates, test.candidates]
    digest = split_hash(data, first.protocol, first.seed, ranks, held, drawn)
    touched = _joined([one.touched for one in splits])
    return Split(first.protocol, first.seed, data, view, validation, test, touched, digest)


def _joined(lists: list[Ragged]) -> Ragged:
    starts = np.cumsum([0, *(len(one.values) for one in lists)])
    offsets = [one.offsets[:-1] + start for one, start in zip(lists, starts, strict=False)]
    return Ragged(np.append(np.concatenate(offsets), starts[-1]), np.concatenate([one.values for one in lists]))


def _held(parts: list[HeldOut]) -> HeldOut:
    drawn: list[NDArray[np.int32]] = [one.candidates for one in parts if one.candidates is not None]
    return HeldOut(_joined([one.items for one in parts]), np.concatenate(drawn) if drawn else None)
