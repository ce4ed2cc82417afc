"""A site's own data under the items that all sites agree on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedrec.data.filters import take
from fedrec.data.interactions import Ids, Interactions
from fedrec.data.training import Ragged, TrainingView
from fedrec.errors import DataError
from fedrec.protocol.protocol import Protocol
from fedrec.protocol.split import Split, make_split


def digest(catalogue: Ids) -> str:
    """sha256 of a catalogue."""
    return hashlib.sha256(json.dumps(list(catalogue)).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class SiteData:
    """The split of a site's own users, and what could not take part."""

    split: Split
    rows_left_out: int
    """Rows of items that the catalogue does not know."""
    items_left_out: int
    users_left_out: int
    """Users with too few rows for the protocol."""


def site_data(
    interactions: Interactions,
    catalogue: Ids,
    protocol: Protocol,
    seed: int,
    name_of: Callable[[str | int], str] = str,
) -> SiteData:
    """Split a site's interactions; items bear their numbers in the catalogue, and unknown ones are left out.

    ``name_of`` says what the catalogue calls an item.
    """
    by_text: dict[str, str | int] = {str(key): key for key in catalogue}
    ids = [by_text.get(name_of(key)) for key in interactions.item_ids]
    known = np.array([key is not None for key in ids])
    rows = np.flatnonzero(known[interactions.items])
    if not len(rows):
        raise DataError("none of the items in the data is in the server's catalogue; compare the item ids of both.")
    kept = take(interactions, rows)
    named: Any = tuple(by_text[name_of(key)] for key in kept.item_ids)
    kept = replace(kept, item_ids=named)
    split = make_split(kept, protocol, seed, catalogue=catalogue)
    return SiteData(
        split,
        rows_left_out=len(interactions) - len(rows),
        items_left_out=int((~known).sum()),
        users_left_out=interactions.n_users - split.data.n_users,
    )


def widened(view: TrainingView, first: int, n_clients: int) -> TrainingView:
    """The view of all clients of a federation, of which a site knows its own, numbered from ``first``, and no others."""
    history = None if view.history is None else _widened(view.history, first, n_clients)
    positives, excluded = (_widened(one, first, n_clients) for one in (view.positives, view.excluded))
    return TrainingView(n_clients, view.n_items, positives, excluded, history)


def _widened(lists: Ragged, first: int, n: int) -> Ragged:
    offsets = np.zeros(n + 1, np.int64)
    offsets[first : first + len(lists) + 1] = lists.offsets
    offsets[first + len(lists) + 1 :] = lists.offsets[-1]
    return Ragged(offsets, lists.values)
