"""ISO dates and times of day as whole numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_DATE = r"^\d{4}[-/]\d{2}[-/]\d{2}"
_ZONE = r" ?(Z|UTC|[+-]\d{2}:?\d{2})$"
_BARE_DATE = r"^\d{4}-\d{2}-\d{2}$"
_MILLION = 10**6


def begins_with_date(column: Any) -> bool:
    """Whether the first text is meant as a date."""
    return len(column) > 0 and bool(pc.match_substring_regex(column.slice(0, 1), _DATE)[0].as_py())


def iso_times(column: Any) -> NDArray[np.int64] | None:
    """Seconds since 1970, or microseconds where any value has parts of a second; None where they are not all dates.

    Times without a zone are taken as UTC.
    """
    if not begins_with_date(column):
        return None
    text = pc.replace_substring_regex(column, r"^(\d{4})/(\d{2})/(\d{2})", r"\1-\2-\3")
    text = pc.replace_substring_regex(text, r",(\d+)", r".\1")
    text = pc.replace_substring_regex(text, r" ?(Z|UTC)$", "Z")
    text = pc.replace_substring_regex(text, r" ([+-]\d{2}:?\d{2})$", r"\1")
    bare = pc.match_substring_regex(text, _BARE_DATE)
    text = pc.if_else(bare, _and(text, " 00:00:00"), text)
    zoned = pc.match_substring_regex(text, r".{10}.*" + _ZONE)
    text = pc.if_else(zoned, text, _and(text, "Z"))
    try:
        times = np.asarray(text.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy())
    except pa.ArrowInvalid:
        return None
    return times if (times % _MILLION).any() else times // _MILLION


def _and(text: Any, end: str) -> Any:
    """Every text with an end; frames have texts of a larger type than files, and Arrow joins no two types."""
    return pc.binary_join_element_wise(text, pa.scalar(end, text.type), pa.scalar("", text.type))


def first_that_is_none(column: Any) -> int:
    """The first row whose value is no date, of a column that begins with one and is not all dates."""
    sound, broken = 0, len(column)  # rows in front that are dates for sure, and rows among which one is none
    while broken - sound > 1:
        middle = (sound + broken) // 2
        sound, broken = (sound, middle) if iso_times(column.slice(0, middle)) is None else (middle, broken)
    return sound
