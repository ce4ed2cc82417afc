"""A split for tuning: the test part is taken out, so that nothing that is chosen on it can have looked at it."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedrec.data.training import Ragged
from fedrec.protocol.choices import Choices
from fedrec.protocol.split import HeldOut, Split, training_view


def sealed(split: Split) -> Split:
    """The same training and validation items, and no test items: not in the rows, not in the pool, not to be evaluated.

    Where the protocol chooses its round on test, validation chooses. Candidates of validation are those of the split.
    """
    n, items = split.data.n_users, split.data.n_items
    parts = (split.training.positives, split.validation.items)
    known = Ragged.build(
        np.concatenate([part.owners for part in parts]), np.concatenate([part.values for part in parts]), n
    )
    kept = np.isin(_pairs(split.data.users, split.data.items, items), _pairs(known.owners, known.values, items))
    data = replace(
        split.data,
        users=split.data.users[kept],
        items=split.data.items[kept],
        ratings=None if split.data.ratings is None else split.data.ratings[kept],
        timestamps=None if split.data.timestamps is None else split.data.timestamps[kept],
    )
    protocol: Choices = split.protocol
    if protocol.select_on != "validation":
        protocol = protocol.model_copy(update={"name": f"{protocol.name}*", "select_on": "validation"})
    nothing = Ragged(np.zeros(n + 1, np.int64), np.zeros(0, np.int32))
    return replace(
        split,
        protocol=protocol,
        data=data,
        training=training_view(data, split.training.positives, known, protocol, split.training.history),
        test=HeldOut(nothing, None),
        touched=known,
        hash=hashlib.sha256(f"sealed|{split.hash}".encode()).hexdigest(),
    )


def _pairs(users: NDArray[np.integer], items: NDArray[np.integer], n_items: int) -> NDArray[np.int64]:
    pairs: NDArray[np.int64] = users.astype(np.int64) * n_items + items
    return pairs
