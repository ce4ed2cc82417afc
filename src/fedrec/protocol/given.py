"""A split somebody else made: the test pairs come from a file, everything else is for training.

Published test sets (Gowalla, Yelp2018, Amazon-Book of the LightGCN repository) cannot be drawn again, only given. Part of
the training pairs may be held out for validation; published code has none and picks its epoch on the test set.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedrec.data.filters import filter_and_tell
from fedrec.data.interactions import Interactions
from fedrec.data.reading import read_csv
from fedrec.errors import ConfigError, DataError
from fedrec.protocol.holdout import TEST, TRAIN, VALIDATION, canonical
from fedrec.protocol.protocol import Protocol
from fedrec.protocol.split import Split, assemble, codes, touched_items

GIVEN = Protocol(
    name="given",
    min_interactions=1,
    holdout="ratio",
    order="random",
    candidates=0,
    select_metric="ndcg@20",
    metrics=(),
    full_metrics=("recall@20", "ndcg@20", "hr@10", "ndcg@10"),
)
"""Full ranking, Recall@20 and NDCG@20, epoch chosen on 10 % of the training pairs."""


def given_split(
    interactions: Interactions, test: str | Path | Interactions, protocol: Protocol = GIVEN, seed: int = 0
) -> Split:
    """The split whose test part is the pairs of ``test`` (a file with user and item, or rows read from one).

    ``interactions`` holds the test pairs too. A random ``protocol.validation_ratio`` of each user's other pairs
    becomes the validation part; with 0 the protocol must select on test, as published code does.
    """
    if protocol.candidates:
        raise ConfigError("a given split is ranked in full; use a protocol with candidates=0.")
    if protocol.validation_ratio == 0 and protocol.select_on == "validation":
        raise ConfigError("without validation pairs nothing can select the epoch; raise validation_ratio.")
    held = test if isinstance(test, Interactions) else read_csv(test, name=str(test))
    data, filtered = filter_and_tell(interactions, min_per_user=1, duplicates="merge", positive_only=True)
    users, items = codes(held.user_ids, data.user_ids), codes(held.item_ids, data.item_ids)
    wanted = users[held.users].astype(np.int64) * data.n_items + items[held.items]
    pairs = data.users.astype(np.int64) * data.n_items + data.items
    unknown = (users[held.users] < 0) | (items[held.items] < 0) | ~np.isin(wanted, pairs)
    if unknown.any():
        row = int(np.argmax(unknown))
        raise DataError(
            f"{held.name}: the test pair of user {held.user_ids[held.users[row]]} and item "
            f"{held.item_ids[held.items[row]]} is not in {data.name}; add the test rows to the data."
        )
    part = np.where(np.isin(pairs, wanted), TEST, TRAIN).astype(np.int8)
    _hold_out(data, part, protocol.validation_ratio, seed)
    order = np.argsort(data.users, kind="stable")
    touched = touched_items(interactions, data)
    return assemble(data, order, part[order], protocol, seed, touched=touched, filtered=filtered.fixed())


def _hold_out(data: Interactions, part: NDArray[np.int8], share: float, seed: int) -> None:
    """Mark a random share of every user's training rows as validation; draws follow ids, not the order of rows."""
    rows = np.nonzero(part == TRAIN)[0]
    users, items = canonical(data.user_ids)[data.users[rows]], canonical(data.item_ids)[data.items[rows]]
    key = np.empty(len(rows))
    key[np.lexsort((items, users))] = np.random.default_rng([seed, 1]).random(len(rows))
    order = np.lexsort((key, users))
    counts = np.bincount(users, minlength=data.n_users)
    position = np.arange(len(rows)) - np.repeat(counts.cumsum() - counts, counts)
    chosen = position < (share * counts).astype(np.int64)[users[order]]
    part[rows[order[chosen]]] = VALIDATION
