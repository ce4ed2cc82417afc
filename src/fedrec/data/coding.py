"""From Arrow columns to Interactions: every value is checked and every id coded, one column at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedrec.data.interactions import Ids, Interactions
from fedrec.data.times import begins_with_date, first_that_is_none, iso_times
from fedrec.errors import DataError, OptionError, brief

Where = Callable[[int, str], str]  # (row, role) -> "ratings.csv, line 7, column 'score'"
_CANONICAL_INTEGER = r"^(0|-?[1-9][0-9]{0,18})$"  # "007" and "7" are two ids, so a column with "007" is text
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_POINT_ZERO = r"\.0*$"
_INT64 = range(-(2**63), 2**63)


def code(columns: Mapping[str, Any], where: Where, name: str, terms: str = "") -> Interactions:
    """Interactions of the chunked columns user and item and, where present, rating and timestamp."""
    plain = {role: plain_column(column) for role, column in columns.items()}
    users, user_ids = _codes(plain["user"], "user", where)
    items, item_ids = _codes(plain["item"], "item", where)
    ratings = _ratings(plain["rating"], where) if "rating" in plain else None
    timestamps = _timestamps(plain["timestamp"], where) if "timestamp" in plain else None
    return Interactions(users, items, ratings, timestamps, user_ids, item_ids, name, terms)


def plain_column(column: Any) -> Any:
    """The column without categorical or view encodings, which few Arrow functions understand."""
    if pa.types.is_dictionary(column.type):
        return pa.chunked_array([plain_column(chunk.dictionary).take(chunk.indices) for chunk in column.chunks])
    if pa.types.is_binary(column.type):
        try:
            return column.cast(pa.string())
        except pa.ArrowInvalid:  # not UTF-8
            return column
    return column.cast(pa.large_string()) if pa.types.is_string_view(column.type) else column


def _codes(column: Any, role: str, where: Where) -> tuple[NDArray[np.int32], Ids]:
    if (empty := empty_values(column, nan=True)).any():
        place = where(int(np.argmax(empty)), role)
        raise OptionError(
            f"{place}: the {role} id is empty", ("fill it in, or leave such rows out", "drop_empty", True)
        )
    encoded = _as_ids(column, role, where).dictionary_encode().combine_chunks()
    codes = np.asarray(encoded.indices, dtype=np.int32)
    values = encoded.dictionary
    ids = values.to_pylist()
    if _is_text(values.type):
        broken = _bools(pc.match_substring_regex(values, r"[\r\n]"))
        _refuse(broken[codes], role, where, lambda row: f"the {role} id has a line break; look for a stray quote")
        if not _bools(pc.match_substring_regex(values, _CANONICAL_INTEGER)).all():
            return codes, tuple(ids)
        ids = [int(value) for value in ids]
    if min(ids) in _INT64 and max(ids) in _INT64:
        return codes, tuple(ids)
    return codes, tuple(str(value) for value in ids)


def _as_ids(column: Any, role: str, where: Where) -> Any:
    if _is_text(column.type) or pa.types.is_integer(column.type):
        return column
    try:
        if pa.types.is_floating(column.type):  # tables with gaps store whole numbers as floats
            return column.cast(pa.int64())
    except pa.ArrowInvalid:
        pass
    try:
        return column.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        kind = column.type
        raise DataError(f"{where(0, role)}: {kind} cannot be an id; use text or whole numbers.") from None


def _ratings(column: Any, where: Where) -> NDArray[np.float64] | None:
    numbers = numbers_of(column, "rating", where)
    if numbers is not None:
        _refuse(numbers < 0, "rating", where, lambda row: f"{_show(column, row)} is negative; use 0 or more")
    return numbers


def _timestamps(column: Any, where: Where) -> NDArray[np.int64] | None:
    """Whole numbers of any unit; a fraction is refused because cutting it off would make up ties."""
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("s"))
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    if _is_text(column.type) and (found := iso_times(column)) is not None:
        return found
    if _is_text(column.type) and (found := _plainly_whole(column)) is not None:
        return found
    numbers = numbers_of(column, "timestamp", where)
    if numbers is None:
        return None
    hint = "is not a whole number of at most 64 bits; give seconds or milliseconds"
    text = _is_text(column.type)
    try:  # exact; a float64 would round beyond 2**53
        plain = pc.replace_substring_regex(column, _POINT_ZERO, "") if text else column
        return np.asarray(plain.cast(pa.int64()).to_numpy())
    except pa.ArrowInvalid:
        whole = np.array([_whole(value) for value in column.to_pylist()], dtype=object) if text else numbers
        bad = [value is None or value != value // 1 or int(value) not in _INT64 for value in whole]
        _refuse(np.array(bad), "timestamp", where, lambda row: f"{_show(column, row)} {hint}")
        return whole.astype(np.int64)


def _plainly_whole(column: Any) -> NDArray[np.int64] | None:
    """Texts as whole numbers where all are written as such, as most times are; nothing needs a closer look then."""
    try:
        numbers = column.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    hexadecimal = pc.starts_with(column, "0x", ignore_case=True)  # which Arrow reads, too
    return None if numbers.null_count or pc.any(hexadecimal).as_py() else np.asarray(numbers.to_numpy())


def _whole(text: str) -> int | None:
    """A number as it is written, to the last digit, if it is whole; one beyond any float is none."""
    try:
        number = Decimal(text)
    except InvalidOperation:  # an exponent beyond all bounds
        return None
    if not number:
        return 0
    return int(number) if 0 <= number.adjusted() < 400 and number == number.to_integral_value() else None


def numbers_of(column: Any, role: str, where: Where) -> NDArray[np.float64] | None:
    """The column as finite numbers, or None where every value is empty."""
    empty = empty_values(column)
    if empty.all():
        return None
    if empty.any():
        ways = ("fill it in everywhere or nowhere, or read no such column", role, None)
        raise OptionError(f"{where(int(np.argmax(empty)), role)}: the {role} is empty", ways)
    try:
        numbers = np.asarray(column.cast(pa.float64(), safe=False).to_numpy())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        text = _is_text(column.type)
        if role == "timestamp" and text and begins_with_date(column):
            raise _no_number(first_that_is_none(column), column, role, where) from None
        is_number = _bools(pc.match_substring_regex(column, _NUMBER)) if text else np.zeros(1, bool)
        if not is_number.all():
            raise _no_number(int(np.argmin(is_number)), column, role, where) from None
        raise
    _refuse(~np.isfinite(numbers), role, where, lambda row: f"{_show(column, row)} is not a finite number")
    return numbers


def _no_number(row: int, column: Any, role: str, where: Where) -> OptionError:
    date = " or an ISO date such as 2024-01-31 or 2024-01-31T12:30:00Z" if role == "timestamp" else ""
    ways = ("mend it, or read no such column", role, None)
    return OptionError(f"{where(row, role)}: {_show(column, row)} is not a number{date}", ways)


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def empty_values(column: Any, nan: bool = False) -> NDArray[np.bool_]:
    """Which values are missing or empty text; with ``nan`` also those that are no numbers."""
    missing = _bools(pc.is_null(column, nan_is_null=nan))
    return missing | _bools(pc.fill_null(pc.equal(column, ""), True)) if _is_text(column.type) else missing


def _bools(mask: Any) -> NDArray[np.bool_]:
    return np.asarray(mask, dtype=bool)


def _show(column: Any, row: int) -> str:
    return brief(repr(column[row].as_py()))


def _refuse(bad: NDArray[np.bool_], role: str, where: Where, reason: Callable[[int], str]) -> None:
    """Raise for the first bad row."""
    if bad.any():
        row = int(np.argmax(bad))
        raise DataError(f"{where(row, role)}: {reason(row)}.")
