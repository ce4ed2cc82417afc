"""Delimited text as Arrow columns of strings."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from fedrec.data.columns import Wanted
from fedrec.data.lines import Expected, may_have_space, require_every_line
from fedrec.data.rows import Text
from fedrec.errors import DataError, OptionError

_DELIMITERS = ("::", "\t", ",", ";", "|", " ")
_SHOWN = {"\t": "a tab", " ": "a space"}
_BLOCK = 1 << 24  # bytes the parser takes at a time; no line is longer
_HEAD = 1 << 16
_SAMPLE = 100  # rows that tell what columns without names hold
_STAND_INS = (b"\x1f", b"\x1e", b"\x1d", b"\x1c")


@dataclass(frozen=True)
class Table:
    """Columns of strings and names of columns by role, the text they came from, and its rows of several lines."""

    columns: dict[str, Any]
    labels: dict[str, str]
    text: Text
    long_rows: int
    header: bool
    told: str | None
    """Which columns were taken, where that was not asked for."""


def read_text(data: bytes, wanted: Wanted, delimiter: str | None, header: bool | None, source: str) -> Table:
    """The wanted columns of a delimited text, with every row it has; without ``header`` the first line decides."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    delimiter = "\t" if delimiter == "\\t" else delimiter  # as typed in a shell
    if not data or data.isspace():
        raise DataError(f"{source}: the file is empty.")
    text = _parted(data, wanted, delimiter, header, source)
    _require_utf8(text)
    sample = list(islice(text.rows(), _SAMPLE))
    first = sample[0]
    names = [name.strip() for name in first.values]
    if len(names) < 2:
        raise _one_column(f"{source}, line {first.number}", first.values[0], delimiter)
    header = wanted.header_of(names, header)
    values = [[value.strip() for value in row.values] for row in sample]
    known = names if header else None
    positions = wanted.positions(known, len(names), f"{source}, line {first.number}", values)
    table, ragged = _parse(text, sorted(set(positions.values())))
    numbers = [k for role, k in positions.items() if role in ("rating", "timestamp") and _is_used(table[f"f{k}"])]
    expected = Expected(len(names), (positions["user"], positions["item"]), numbers, header)
    long_rows = require_every_line(text, len(table) + len(ragged), expected)
    if ragged:
        place, found = f"{source}, line {text.line(ragged[0][0] - 1)}", ragged[0][1]
        raise DataError(f"{place}: {found} columns where the first line has {len(names)}; mend or remove it.")
    if header:
        table = table.slice(1)
    if not len(table):
        raise DataError(f"{source}: there is a header but no row below it.")
    columns = {role: table[f"f{k}"] for role, k in positions.items()}
    if long_rows or may_have_space(text):
        columns = {role: pc.utf8_trim_whitespace(column) for role, column in columns.items()}
    labels = {role: names[k] if header else str(k) for role, k in positions.items()}
    return Table(columns, labels, text, long_rows, header, wanted.told(known, positions))


def _require_utf8(text: Text) -> None:
    if text.data.isascii():
        return
    try:
        text.data.decode()
    except UnicodeDecodeError as error:
        line = text.data.count(b"\n", 0, error.start) + 1
        before = text.data[text.data.rfind(b"\n", 0, error.start) + 1 : error.start]
        column = before.count(text.delimiter.encode()) + 1
        place = f"{text.source}, line {line}, column {column}"
        raise OptionError(
            f"{place}: not UTF-8 text",
            ("save the file in that encoding, or say which one it has", "encoding", "latin-1"),
        ) from None


def _parted(data: bytes, wanted: Wanted, delimiter: str | None, header: bool | None, source: str) -> Text:
    if delimiter is None:
        delimiter = _sniff(data, wanted, header)
    if not delimiter or set(delimiter) & set('\r\n"'):
        raise DataError(f"{source}: {delimiter!r} cannot be a delimiter; give one such as ',' or '::'.")
    wide = delimiter.encode()
    if len(wide) == 1:
        return Text(data, delimiter, True, source)
    # The CSV parser parts at one byte only; quotes have no meaning in files with such delimiters.
    for byte in _STAND_INS:
        if byte not in data:
            return Text(data.replace(wide, byte), byte.decode(), False, source)
    raise DataError(f"{source}: control characters in the file prevent reading it with delimiter '{delimiter}'.")


def _sniff(data: bytes, wanted: Wanted, header: bool | None) -> str:
    """The delimiter under which the header has the wanted names, else the one that parts most columns."""
    lines = [line.decode(errors="replace") for line in data[:_HEAD].splitlines() if line.strip()]
    lines = lines[:1] if header else lines[:5]

    def merit(delimiter: str) -> tuple[bool, int, int]:
        cut = [[value.strip().strip('"') for value in line.split(delimiter)] for line in lines]
        return header is not False and wanted.names_found(cut[0]), min(map(len, cut)), len(cut[0])

    return max(_DELIMITERS, key=merit)


def _parse(text: Text, positions: list[int]) -> tuple[Any, list[tuple[int, int]]]:
    """The columns at the given positions; and number and width of every row that is not as wide as the first."""
    ragged: list[tuple[int, int]] = []

    def note(row: Any) -> str:
        ragged.append((row.number, row.actual_columns))
        return "skip"

    names = [f"f{k}" for k in positions]
    try:
        table = pacsv.read_csv(
            pa.BufferReader(text.data),
            # One thread: rows arrive in order, and reading is a small part of the work.
            pacsv.ReadOptions(use_threads=False, block_size=_BLOCK, autogenerate_column_names=True),
            pacsv.ParseOptions(
                delimiter=text.delimiter,
                quote_char='"' if text.quoted else False,
                newlines_in_values=text.quoted,
                invalid_row_handler=note,
            ),
            pacsv.ConvertOptions(
                include_columns=names,
                column_types={name: pa.string() for name in names},
                null_values=[],
                strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid as error:
        raise DataError(f"{text.source}: not delimited text ({str(error).splitlines()[0]}).") from None
    return table, ragged


def _is_used(column: Any) -> bool:
    """Whether a column of numbers has any; one that is empty in every line counts as absent."""
    return len(column) > 0 and bool(column[-1].as_py().strip())


def _one_column(place: str, line: str, delimiter: str | None) -> DataError:
    better = max(_DELIMITERS, key=lambda part: len(line.split(part)))
    if delimiter is None or better not in line:
        ways = ("say what parts them, if there are two", "delimiter", "^")
        return OptionError(f"{place}: there is one column only; a user and an item column are needed", ways)
    given, hint = (_SHOWN.get(part, f"'{part}'") for part in (delimiter, better))
    return DataError(f"{place}: {given} does not part the line into columns; it looks parted by {hint}.")
