"""What a filter left of a data set, and why the rest is gone: nobody should vanish without a word."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from fedrec.data.interactions import Interactions


class Counts(BaseModel):
    """How many there are."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    users: int
    items: int
    rows: int

    def __sub__(self, other: Counts) -> Counts:
        return Counts(users=self.users - other.users, items=self.items - other.items, rows=self.rows - other.rows)


class Reason(BaseModel):
    """One rule of a filter and what it took away from what the rules before it had left."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    why: str
    """What was dropped, in words that follow a number: users with fewer than 10 rows."""
    option: str | None
    """The choice of the protocol that changes it; null where none does."""
    dropped: Counts


class Filtered(BaseModel):
    """Users, items and rows before and after a filter."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    given: Counts
    """As they were read."""
    kept: Counts
    dropped: Counts
    reasons: list[Reason]
    """In the order of the rules; only those that took something away."""

    def __str__(self) -> str:
        """One line."""
        if not self.dropped.rows:
            return f"{_words(self.kept)}, nothing dropped"
        pairs = [(name, getattr(self.kept, name), getattr(self.given, name)) for name in ("users", "items", "rows")]
        kept = ", ".join(f"{now:,} of {before:,} {name}" for name, now, before in pairs)
        return f"kept {kept}; dropped {', '.join(map(_reason, self.reasons))}"

    def fixed(self) -> Filtered:
        """The same where no option of the protocol changes it."""
        return self.model_copy(update={"reasons": [one.model_copy(update={"option": None}) for one in self.reasons]})


def count(data: Interactions, rows: NDArray[np.int64] | None = None) -> Counts:
    """Of some rows of a data set, or of all."""
    if rows is None:
        return Counts(users=data.n_users, items=data.n_items, rows=len(data))
    users, items = (int(np.count_nonzero(np.bincount(codes[rows], minlength=1))) for codes in (data.users, data.items))
    return Counts(users=users, items=items, rows=len(rows))


def _words(counts: Counts) -> str:
    return f"{counts.users:,} users, {counts.items:,} items, {counts.rows:,} rows"


def _reason(reason: Reason) -> str:
    number = reason.dropped.users if reason.why.startswith("users") else reason.dropped.rows
    return f"{number:,} {reason.why}{f' ({reason.option})' if reason.option else ''}"
