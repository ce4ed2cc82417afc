"""Delimited text as Arrow columns of strings, and the line in which a row stands."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from fedrec.data.columns import Wanted
from fedrec.errors import DataError

_DELIMITERS = ("::", "\t", ",", ";", "|", " ")
_SHOWN = {"\t": "a tab", " ": "a space"}
_BLOCK = 1 << 24  # bytes the parser takes at a time; no line is longer
_HEAD = 1 << 16
_STAND_INS = (b"\x1f", b"\x1e", b"\x1d", b"\x1c")


@dataclass(frozen=True)
class Text:
    """Text whose values are parted by one byte; ``quoted`` says whether '"' may wrap a value."""

    data: bytes
    delimiter: str
    quoted: bool
    source: str

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """First line and values of every row that is not blank; slow, for the header and for errors."""
        lines = io.TextIOWrapper(io.BytesIO(self.data), encoding="utf-8", newline="")
        if self.quoted:
            reader = csv.reader(lines, delimiter=self.delimiter, strict=True)
        else:
            reader = csv.reader(lines, delimiter=self.delimiter, quoting=csv.QUOTE_NONE)
        start = 1
        try:
            for row in reader:
                if row:
                    yield start, row
                start = reader.line_num + 1
        except csv.Error as error:
            raise DataError(f"{self.source}, line {start}: a quote is not closed or out of place ({error}).") from None

    def line(self, index: int) -> int:
        """Line number of row ``index``, the header being row 0."""
        return next((line for k, (line, _) in enumerate(self.rows()) if k == index), index + 1)


def read_text(
    data: bytes, wanted: Wanted, delimiter: str | None, header: bool, source: str
) -> tuple[dict[str, Any], dict[str, str], Text]:
    """Columns of strings and names of columns by role, and the text they came from."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    delimiter = "\t" if delimiter == "\\t" else delimiter  # as typed in a shell
    if not data.strip():
        raise DataError(f"{source}: the file is empty.")
    text = _parted(data, wanted, delimiter, header, source)
    _require_utf8(text)
    first, head = next(text.rows())
    names = [name.strip() for name in head]
    if len(names) < 2:
        raise DataError(f"{source}, line {first}: {_advice(head[0], delimiter)}.")
    positions = wanted.positions(names if header else None, len(names), f"{source}, line {first}")
    table = _parse(text, sorted(positions.values()), len(names))
    if header:
        table = table.slice(1)
    if not len(table):
        raise DataError(f"{source}: there is a header but no row below it.")
    columns = {role: pc.utf8_trim_whitespace(table[f"f{k}"]) for role, k in positions.items()}
    labels = {role: names[k] if header else str(k) for role, k in positions.items()}
    return columns, labels, text


def _require_utf8(text: Text) -> None:
    try:
        text.data.decode()
    except UnicodeDecodeError as error:
        line = text.data.count(b"\n", 0, error.start) + 1
        before = text.data[text.data.rfind(b"\n", 0, error.start) + 1 : error.start]
        column = before.count(text.delimiter.encode()) + 1
        raise DataError(
            f"{text.source}, line {line}, column {column}: not UTF-8 text; save the file in that encoding."
        ) from None


def _parted(data: bytes, wanted: Wanted, delimiter: str | None, header: bool, source: str) -> Text:
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


def _sniff(data: bytes, wanted: Wanted, header: bool) -> str:
    """The delimiter under which the header has the wanted names, else the one that parts most columns."""
    lines = [line.decode(errors="replace") for line in data[:_HEAD].splitlines() if line.strip()]
    lines = lines[:1] if header else lines[:5]

    def merit(delimiter: str) -> tuple[bool, int]:
        cut = [[value.strip().strip('"') for value in line.split(delimiter)] for line in lines]
        return wanted.user in cut[0] and wanted.item in cut[0], min(len(values) for values in cut)

    return max(_DELIMITERS, key=merit)


def _parse(text: Text, positions: list[int], width: int) -> Any:
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
    if text.quoted and text.data.count(b'"') % 2:
        for _ in text.rows():  # an open quote swallows all lines below it without a word
            pass
    if ragged:
        number, found = ragged[0]
        place = f"{text.source}, line {text.line(number - 1)}"
        raise DataError(f"{place}: {found} columns where the first line has {width}; mend or remove it.")
    return table


def _advice(line: str, delimiter: str | None) -> str:
    better = max(_DELIMITERS, key=lambda part: len(line.split(part)))
    if delimiter is None or better not in line:
        return "there is one column only; a user and an item column are needed"
    given, hint = (_SHOWN.get(part, f"'{part}'") for part in (delimiter, better))
    return f"{given} does not part the line into columns; it looks parted by {hint}"
