"""Which columns of a table hold the user, the item, the rating and the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fedrec.errors import DataError, brief, unknown

Column = str | int  # a name, or a position counted from 0
AUTO = "auto"  # for rating and timestamp: the column of that name where there is one


@dataclass(frozen=True)
class Wanted:
    """The columns a caller asks for; None means that the table has no such column or it is to be ignored."""

    user: Column
    item: Column
    rating: Column | None
    timestamp: Column | None

    def positions(self, names: Sequence[str] | None, width: int, source: str) -> dict[str, int]:
        """Position of every wanted column among ``width``; ``names`` is None for a file without header."""
        if names is not None:
            _refuse_duplicates(names, source)
        found: dict[str, int] = {}
        for role in ("user", "item", "rating", "timestamp"):
            column: Column | None = getattr(self, role)
            if column == AUTO and role in ("rating", "timestamp"):
                column = role if names is not None and role in names else None
            if column is not None:
                found[role] = _position(role, column, names, width, source)
        if len(set(found.values())) < len(found):
            used = ", ".join(f"{role}={getattr(self, role)!r}" for role in found)
            raise DataError(f"{source}: one column was named for two purposes ({used}); name a different one for each.")
        return found


def _refuse_duplicates(names: Sequence[str], source: str) -> None:
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        places = ", ".join(str(k + 1) for k, name in enumerate(names) if name == twice[0])
        raise DataError(f"{source}: columns {places} are all called '{brief(twice[0])}'; rename all but one.")


def _position(role: str, column: Column, names: Sequence[str] | None, width: int, source: str) -> int:
    if isinstance(column, int):
        if 0 <= column < width:
            return column
        raise DataError(f"{source}: no column {column}; there are {width}, numbered from 0 to {width - 1}.")
    if names is None:
        raise DataError(f"{source}: without a header, columns are numbers counted from 0, not '{column}'.")
    if column in names:
        return list(names).index(column)
    raise DataError(f"{source}: {unknown('column', column, names)} Name the {role} column.")
