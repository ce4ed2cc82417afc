"""Which columns of a table hold the user, the item, the rating and the time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fedrec.errors import DataError, OptionError, brief, unknown

Column = str | int  # a name, or a position counted from 0
AUTO = "auto"  # the column whose name is a usual one for its role; for rating and timestamp only where there is one
ROLES = ("user", "item", "rating", "timestamp")

_USUAL = {
    "user": "user userid uid customer customerid client clientid member memberid visitor visitorid account accountid buyer "
    "buyerid reviewer reviewerid shopper shopperid reader readerid listener listenerid viewer viewerid subscriber "
    "subscriberid patron patronid person personid userkey customerkey useridx username",
    "item": "item itemid iid product productid sku skuid article articleid asin parentasin movie movieid film filmid song "
    "songid track trackid artist artistid album albumid book bookid isbn game gameid appid anime animeid video videoid "
    "course courseid recipe recipeid content contentid news newsid poi poiid venue venueid location locationid business "
    "businessid page pageid post postid itemkey productkey itemidx stockcode",
    "rating": "rating ratings score stars overall grade count counts plays playcount listens views clicks quantity qty "
    "weight",
    "timestamp": "timestamp timestamps time ts date datetime unixtime unixreviewtime unixtimestamp epoch eventtime "
    "eventdate reviewtime reviewdate ratingtime orderdate ordertime purchasedate purchasetime invoicedate createdat "
    "createdon created occurredat timestampms timems when day",
}
USUAL: Mapping[str, Mapping[str, int]] = {role: {n: k for k, n in enumerate(v.split())} for role, v in _USUAL.items()}
"""Usual names of columns by role, the best first; letters and digits only."""
_TIME = re.compile(
    r"\d{4}[-/]\d{2}[-/]\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?(?: ?(?:Z|UTC|[+-]\d{2}:?\d{2}))?)?"
)
_OLDEST = 10**8  # whole numbers from here on are taken for times: 1973 in seconds; ratings and counts are smaller


@dataclass(frozen=True)
class Wanted:
    """The columns a caller asks for; None means that the table has no such column or it is to be ignored."""

    user: Column = AUTO
    item: Column = AUTO
    rating: Column | None = AUTO
    timestamp: Column | None = AUTO
    others: Mapping[str, Column] = field(default_factory=dict)
    """Further columns, by a role of their own."""

    def header_of(self, first: Sequence[str], header: bool | None) -> bool:
        """Whether a first line names columns, where it was not said: known names do, numbers and times do not."""
        if header is not None:
            return header
        chosen = [getattr(self, role) for role in ROLES]
        if any(isinstance(column, str) and column != AUTO for column in [*chosen, *self.others.values()]):
            return True
        if any(usual(role, first) is not None for role in ROLES):
            return True
        return not any(not value or is_number(value) or is_time(value) for value in first)

    def names_found(self, first: Sequence[str]) -> bool:
        """Whether a line holds the names of the user and the item column."""
        known = ((self.user, "user"), (self.item, "item"))
        return all(usual(role, first) is not None if column == AUTO else column in first for column, role in known)

    def positions(
        self, names: Sequence[str] | None, width: int, source: str, sample: Sequence[Sequence[str]] = ()
    ) -> dict[str, int]:
        """Position of every wanted column among ``width``; ``names`` is None for a file without header.

        Without names, columns that were not named are user, item and what the values of the ``sample`` look like.
        """
        found: dict[str, int] = {}
        guessed = _guessed(sample, width) if names is None and self.user == AUTO and self.item == AUTO else {}
        for role in ROLES:
            column: Column | None = getattr(self, role)
            if column is None:
                continue
            if column != AUTO:
                found[role] = _position(role, column, names, width, source)
            elif (place := guessed.get(role) if names is None else usual(role, names)) is not None:
                found[role] = place
            elif role in ("user", "item"):
                raise _not_found(role, names, source)
        for role, column in self.others.items():
            found[role] = _position(role, column, names, width, source)
        places = [found[role] for role in ROLES if role in found]
        if len(set(places)) < len(places):
            used = ", ".join(f"{role}={getattr(self, role)!r}" for role in found if role in ROLES)
            raise DataError(f"{source}: one column was named for two purposes ({used}); name a different one for each.")
        if names is not None:
            _refuse_duplicates(names, sorted(set(found.values())), source)
        return found

    def told(self, names: Sequence[str] | None, positions: Mapping[str, int]) -> str | None:
        """One line that says which columns were taken, where that was not asked for by name."""
        taken = [role for role in ROLES if role in positions]
        as_said = [
            getattr(self, role) != AUTO or (names is not None and names[positions[role]] == role) for role in taken
        ]
        if all(as_said):
            return None
        words = {"timestamp": "time"}
        if names is None:
            found = [f"{words.get(role, role)} {positions[role]}" for role in taken]
            return f"no header; columns, counted from 0: {', '.join(found)}"
        found = [f"{words.get(role, role)} '{brief(names[positions[role]])}'" for role in taken]
        return f"columns: {', '.join(found)}"


def usual(role: str, names: Sequence[str]) -> int | None:
    """Position of the column whose name is the best of the usual ones for a role, if there is one."""
    known = [(USUAL[role].get(plain(name), -1), k) for k, name in enumerate(names)]
    ranked = [(rank > 0 and not plain(names[k]).endswith("id"), rank, k) for rank, k in known if rank >= 0]
    return min(ranked, default=(False, 0, None))[2]  # ids come before what may be a name or a title


def plain(name: str) -> str:
    """A name without capitals, signs and the type that some data sets write behind a colon."""
    return re.sub(r"[^a-z0-9]", "", name.split(":")[0].lower())


def is_number(text: str) -> bool:
    """Whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def is_time(text: str) -> bool:
    """Whether a text is an ISO date, with or without a time of day."""
    return _TIME.fullmatch(text) is not None


def _guessed(sample: Sequence[Sequence[str]], width: int) -> dict[str, int]:
    """Columns of a table without names: user, item, and then a rating and a time in any order."""
    found = {"user": 0, "item": 1}
    for k in range(2, min(width, 4)):
        values = [row[k] for row in sample if k < len(row)]
        if values and "timestamp" not in found and all(is_time(value) or _is_epoch(value) for value in values):
            found["timestamp"] = k
        elif values and "rating" not in found and all(is_number(value) for value in values):
            found["rating"] = k
    return found


def _is_epoch(value: str) -> bool:
    return is_number(value) and _OLDEST <= float(value) < float("inf")


def _not_found(role: str, names: Sequence[str] | None, source: str) -> DataError:
    if names is None:
        return OptionError(f"{source}: without a header the {role} column has to be told", ("give its number", role, 0))
    shown = brief(", ".join(names), 200)
    ways = (("name it", role, "NAME"), ("say that the first line is a row, if it is one", "header", False))
    return OptionError(f"{source}: no {role} column is recognised among {shown}", *ways)


def _refuse_duplicates(names: Sequence[str], used: Sequence[int], source: str) -> None:
    for k in used:
        same = [str(n + 1) for n, name in enumerate(names) if name == names[k]]
        if len(same) > 1:
            places = ", ".join(same)
            raise DataError(f"{source}: columns {places} are all called '{brief(names[k])}'; rename all but one.")


def _position(role: str, column: Column, names: Sequence[str] | None, width: int, source: str) -> int:
    if isinstance(column, str) and column not in (names or ()) and re.fullmatch(r"[0-9]{1,6}", column):
        column = int(column)  # as typed in a shell
    if isinstance(column, int):
        if 0 <= column < width:
            return column
        raise DataError(f"{source}: no column {column}; there are {width}, numbered from 0 to {width - 1}.")
    if names is None:
        raise DataError(f"{source}: without a header, columns are numbers counted from 0, not '{column}'.")
    if column in names:
        return list(names).index(column)
    raise DataError(f"{source}: {unknown('column', column, names)} Name the {role} column.")
