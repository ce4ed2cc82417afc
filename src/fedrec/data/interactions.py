"""What was observed: one small immutable table of (user, item, rating, time) rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedrec.data.item_table import ItemTable

Ids = tuple[str, ...] | tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Interactions:
    """Rows in file order; users and items are coded 0..n-1 in order of first appearance.

    ``ratings`` and ``timestamps`` are None where the source has none. Arrays are read-only.
    """

    users: NDArray[np.int32]
    items: NDArray[np.int32]
    ratings: NDArray[np.float64] | None
    timestamps: NDArray[np.int64] | None
    user_ids: Ids
    item_ids: Ids
    name: str = "data"
    terms: str = ""
    notes: tuple[str, ...] = ()
    """What whoever reads the data should know about how it was read."""
    about: ItemTable | None = None
    """Titles of items, where they are known."""

    def __post_init__(self) -> None:
        for array in (self.users, self.items, self.ratings, self.timestamps):
            if array is not None:
                array.setflags(write=False)

    def __len__(self) -> int:
        return len(self.users)

    @property
    def n_users(self) -> int:
        """Number of distinct users."""
        return len(self.user_ids)

    @property
    def n_items(self) -> int:
        """Number of distinct items."""
        return len(self.item_ids)

    @cached_property
    def user_index(self) -> dict[str | int, int]:
        """Code of every original user id."""
        ids: tuple[str | int, ...] = self.user_ids
        return {key: code for code, key in enumerate(ids)}

    @cached_property
    def item_index(self) -> dict[str | int, int]:
        """Code of every original item id."""
        ids: tuple[str | int, ...] = self.item_ids
        return {key: code for code, key in enumerate(ids)}

    def title(self, item: str | int) -> str | None:
        """The title of an item by its original id, where it is known."""
        return None if self.about is None else self.about.title(item)

    def __repr__(self) -> str:
        return f"Interactions({self.name!r}: {self.n_users} users, {self.n_items} items, {len(self)} rows)"
