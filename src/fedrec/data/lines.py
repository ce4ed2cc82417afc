"""Proof that no line of a delimited text was lost: every line that is not blank became a row, or is accounted for.

A quote where none belongs makes the parser take everything up to the next quote for one value, without a word. So rows
are counted against lines, and where the two differ, or a quote stands where it should not, the text is read again by
the strict reader of the standard library.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedrec.data.columns import is_number, is_time
from fedrec.data.rows import Text
from fedrec.errors import DataError

_QUOTE, _LF, _CR, _SPACE = b'"'[0], b"\n"[0], b"\r"[0], b" "[0]
_CHUNK = 1 << 18  # bytes looked at together: they stay in the processor's cache, with masks of as many


@dataclass(frozen=True)
class Expected:
    """What a row of the file looks like: its number of columns, those with ids, and those with numbers."""

    width: int
    ids: Sequence[int]
    numbers: Sequence[int]
    header: bool

    def is_row(self, line: str, text: Text) -> bool:
        """Whether a line could be a row by itself, whatever quotes around it say."""
        part = re.escape(text.delimiter)
        closed = re.compile(rf'(?:^|(?<={part}))"((?:[^"]|"")*)"(?=$|{part})')
        values = closed.sub(lambda found: found[1].replace(text.delimiter, "_"), line.strip("\r\n"))
        cells = [value.strip() for value in values.split(text.delimiter)]
        if len(cells) != self.width or not all(cells[k] for k in self.ids):
            return False
        return all(is_number(cells[k]) or is_time(cells[k]) for k in self.numbers)


def require_every_line(text: Text, rows: int, expected: Expected) -> int:
    """Refuse a text of which ``rows`` (with the header) are not all; returns how many rows span several lines."""
    lines = count_lines(text.data)
    if not text.quoted or _QUOTE not in text.data:
        if rows != lines:
            raise DataError(f"{text.source}: {rows} rows were read from {lines} lines; look for control characters.")
        return 0
    if rows == lines and _quotes_in_order(text):
        return 0
    found, long = 0, 0
    for row in text.rows():
        found += 1
        if len(row.lines) > 1:
            long += 1
            _refuse_hidden_rows(row.number, row.lines, text, expected, header=expected.header and found == 1)
    if found != rows:
        raise DataError(
            f"{text.source}: {rows} rows were read where a strict reader finds {found}; look for stray quotes."
        )
    return long


def count_lines(data: bytes) -> int:
    """Lines that are not empty; they end with a line feed, a carriage return or both."""
    total, after_end = 0, True
    for start in range(0, len(data), _CHUNK):
        chunk = np.frombuffer(data, np.uint8, min(_CHUNK, len(data) - start), start)
        ends = (chunk == _LF) | (chunk == _CR)
        total += int(after_end and not ends[0]) + int(np.count_nonzero(ends[:-1] & ~ends[1:]))
        after_end = bool(ends[-1])
    return total


def may_have_space(text: Text) -> bool:
    """Whether white space may stand in a value; where no row spans several lines, False is a proof that none does."""
    if not text.data.isascii():
        return True
    # A delimiter that is white space may stand in a value between quotes.
    usual = {_LF, _CR} if _QUOTE in text.data else {_LF, _CR, ord(text.delimiter)}
    for start in range(0, len(text.data), _CHUNK):
        chunk = np.frombuffer(text.data, np.uint8, min(_CHUNK, len(text.data) - start), start)
        low = chunk <= _SPACE
        for byte in usual:
            low &= chunk != byte
        if low.any():
            return True
    return False


def _quotes_in_order(text: Text) -> bool:
    """Whether quotes only wrap whole values and stand doubled inside: every other one opens, the next one closes."""
    data = np.frombuffer(text.data, np.uint8)
    outside = np.zeros(256, np.bool_)  # bytes that may stand beside a wrapped value
    outside[[_LF, _CR, ord(text.delimiter)]] = True
    opens = True
    for start in range(0, len(data), _CHUNK):
        at = np.flatnonzero(data[start : start + _CHUNK] == _QUOTE) + start
        opening, closing = (at[::2], at[1::2]) if opens else (at[1::2], at[::2])
        before, after = data[np.maximum(opening - 1, 0)], data[np.minimum(closing + 1, len(data) - 1)]
        # A quote right before an opening one, or right after a closing one, is the other half of a doubled quote.
        good_open = outside[before] | (before == _QUOTE) | (opening == 0)
        good_close = outside[after] | (after == _QUOTE) | (closing == len(data) - 1)
        if not (good_open.all() and good_close.all()):
            return False
        opens ^= bool(len(at) % 2)
    return opens


def _refuse_hidden_rows(number: int, lines: Sequence[str], text: Text, expected: Expected, header: bool) -> None:
    """Refuse a row of several lines if its first line and a later one are rows by themselves: a quote swallowed it."""
    if not (header or expected.is_row(lines[0], text)):
        return
    for offset, line in enumerate(lines[1:], 1):
        if expected.is_row(line, text):
            raise DataError(
                f"{text.source}, line {number}: a quote that opens here closes in line {number + len(lines) - 1}, and "
                f"line {number + offset} looks like a row of its own; remove the stray quote, or the line "
                "breaks from the value."
            )
