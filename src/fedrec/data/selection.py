"""Which rows of a table are read: rows that say something else, or nothing, are left out and counted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedrec.data.coding import Where, empty_values, numbers_of, plain_column
from fedrec.data.filters import take
from fedrec.data.interactions import Interactions
from fedrec.errors import DataError, OptionError, brief

_CONDITION = re.compile(r"\s*(.+?)\s*(!=|>=|<=|=|>|<)\s*(.*?)\s*", re.DOTALL)
_COMPARED = {">=": pc.greater_equal, "<=": pc.less_equal, ">": pc.greater, "<": pc.less}


@dataclass(frozen=True)
class Condition:
    """A column, how it is compared, and with what: one of several texts, or a number."""

    column: str
    sign: str
    values: tuple[str, ...]

    @staticmethod
    def parse(text: str) -> Condition:
        """From text such as ``event=purchase,cart``, ``country!=NL`` or ``price>=10``."""
        found = _CONDITION.fullmatch(text)
        if found is None:
            raise DataError(
                f"'{brief(text)}' is no condition on rows; write column=value, such as event=purchase,cart."
            )
        column, sign, value = found.groups()
        values = tuple(part.strip() for part in value.split(",")) if sign in ("=", "!=") else (value,)
        return Condition(column, sign, values)

    def __str__(self) -> str:
        return f"{self.column}{self.sign}{','.join(self.values)}"

    def holds(self, column: Any, source: str) -> NDArray[np.bool_]:
        """For which values."""
        if self.sign in ("=", "!="):
            inside = np.asarray(pc.is_in(column.cast(pa.string()), pa.array(self.values)), bool)
            return inside if self.sign == "=" else ~inside
        try:
            numbers, bound = column.cast(pa.float64()), float(self.values[0])
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError):
            raise DataError(f"{source}: '{self}' compares what are not all numbers; use = or !=.") from None
        return np.asarray(pc.fill_null(_COMPARED[self.sign](numbers, bound), False), bool)


@dataclass(frozen=True)
class Selection:
    """What a row must be like to be read."""

    where: tuple[Condition, ...] = ()
    drop_empty: bool = False
    min_rating: float | None = None
    min_count: int = 1

    @property
    def columns(self) -> dict[str, str]:
        """Further columns that are looked at, by a role of their own."""
        return {f"where {condition.column}": condition.column for condition in self.where}

    def rows(self, columns: Mapping[str, Any], where: Where, source: str) -> tuple[NDArray[np.int64], list[str]]:
        """Rows that are read, and what is to be said of those that are not."""
        rows, notes = np.arange(len(columns["user"])), list[str]()

        def keep(good: NDArray[np.bool_], why: str) -> None:
            nonlocal rows
            left = rows[good[rows]]
            if len(left) < len(rows):
                notes.append(f"{source}: {len(rows) - len(left):,} of {len(rows):,} rows {why} and were left out.")
            if not len(left):
                raise DataError(f"{source}: no row is left, all others {why}.")
            rows = left

        for condition in self.where:
            values = plain_column(columns[f"where {condition.column}"])
            keep(condition.holds(values, source), f"are not {condition}")
        if self.drop_empty:
            empty = [empty_values(plain_column(columns[role]), nan=True) for role in ("user", "item")]
            keep(~(empty[0] | empty[1]), "have an empty user or item")
        if self.min_rating is not None:
            keep(self._liked(columns, rows, where, source, self.min_rating), f"are rated below {self.min_rating:g}")
        return rows, notes

    def _liked(
        self, columns: Mapping[str, Any], rows: NDArray[np.int64], where: Where, source: str, least: float
    ) -> NDArray[np.bool_]:
        numbers = None
        if "rating" in columns:
            chosen = plain_column(columns["rating"]).take(rows)
            numbers = numbers_of(chosen, "rating", lambda row, role: where(int(rows[row]), role))
        if numbers is None:
            raise OptionError(
                f"{source}: there are no ratings to be {least:g} or more",
                ("name their column", "rating", "NAME"),
            )
        good = np.zeros(len(columns["user"]), np.bool_)
        good[rows] = numbers >= least
        return good

    def often(self, data: Interactions) -> Interactions:
        """Without rows of pairs that stand there less than ``min_count`` times."""
        if self.min_count <= 1:
            return data
        _, pair, counts = np.unique(
            data.users.astype(np.int64) * data.n_items + data.items, return_inverse=True, return_counts=True
        )
        rows = np.flatnonzero(counts[pair] >= self.min_count)
        if not len(rows):
            raise DataError(f"{data.name}: no user has an item in {self.min_count} rows.")
        note = f"{data.name}: {len(data) - len(rows):,} of {len(data):,} rows are of a user and an item that meet less than {self.min_count} times and were left out."
        return replace(take(data, rows), notes=(*data.notes, note)) if len(rows) < len(data) else data


def selection_of(
    where: str | list[str] | tuple[str, ...], drop_empty: bool, min_rating: float | None, min_count: int
) -> Selection:
    """What a caller's options ask for."""
    conditions = tuple(Condition.parse(text) for text in ([where] if isinstance(where, str) else where))
    return Selection(conditions, drop_empty, min_rating, min_count)
