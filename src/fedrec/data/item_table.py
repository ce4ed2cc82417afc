"""What is known of items beside who has them: titles, and further columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fedrec.data.columns import plain, usual
from fedrec.data.encoding import as_utf8
from fedrec.data.unpacking import content
from fedrec.errors import DataError, brief

_TITLES = ("title", "movietitle", "itemtitle", "producttitle", "booktitle", "name", "itemname", "productname", "moviename",
           "artistname", "trackname", "description", "label")  # fmt: skip
_IDS = ("id", "itemid")
_DELIMITERS = ("::", "\t", ",", ";", "|")


@dataclass(frozen=True, eq=False)
class ItemTable:
    """Titles and further values of items, by the text of their id."""

    titles: Mapping[str, str]
    columns: tuple[str, ...] = ()
    """Names of further columns."""
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Values of the further columns."""
    source: str = "items"

    def title(self, item: str | int) -> str | None:
        """The title of an item by its original id."""
        return self.titles.get(str(item))

    def more(self, item: str | int) -> dict[str, str]:
        """Further values of an item by column."""
        return dict(zip(self.columns, self.values.get(str(item), ()), strict=False))


def read_items(path: str | Path, encoding: str | None = None) -> ItemTable:
    """Items from a delimited text or Parquet file: an id, a title, and whatever stands in further columns.

    Columns are found by their usual names (``id``, ``item_id``, ``sku``, ...; ``title``, ``name``, ...); without such names
    the first column is the id and the second the title.
    """
    return items_of(content(Path(path)), str(path), encoding)


def items_of(data: bytes, source: str, encoding: str | None = None) -> ItemTable:
    """The table from the bytes of such a file."""
    rows = _parquet(data, source) if data.startswith(b"PAR1") else _text(data, encoding, source)
    header, rows = (rows[0], rows[1:]) if _is_header(rows[0]) else (None, rows)
    id_, title = _places(header, len(rows[0]) if rows else 0, source)
    further = [k for k in range(len(header or ())) if k not in (id_, title)]
    titles: dict[str, str] = {}
    values: dict[str, tuple[str, ...]] = {}
    for row in rows:
        if len(row) <= max(id_, title) or not row[id_] or not row[title]:
            continue  # an item without a title is shown by its id
        titles.setdefault(row[id_], row[title])
        if further:
            values.setdefault(row[id_], tuple(row[k] if k < len(row) else "" for k in further))
    if not titles:
        raise DataError(f"{source}: there is no item with an id and a title in it.")
    return ItemTable(titles, tuple(header[k].split(":")[0] for k in further) if header else (), values, source)


def _is_header(first: list[str]) -> bool:
    names = [plain(name) for name in first]
    return usual("item", first) is not None or any(name in _TITLES + _IDS for name in names)


def _places(header: list[str] | None, width: int, source: str) -> tuple[int, int]:
    if header is None:
        if width < 2:
            raise DataError(f"{source}: a table of items has an id and a title; there are not two columns.")
        return 0, 1
    names = [plain(name) for name in header]
    id_ = next((names.index(name) for name in _IDS if name in names), usual("item", header))
    title = next((names.index(name) for name in _TITLES if name in names), None)
    if id_ is None or title is None:
        missing = "id" if id_ is None else "title"
        raise DataError(
            f"{source}: no {missing} column is recognised among {brief(', '.join(header), 200)}; call it '{missing}'."
        )
    return id_, title


def _parquet(data: bytes, source: str) -> list[list[str]]:
    try:
        table = pq.read_table(pa.BufferReader(data))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{source}: the Parquet file is damaged ({brief(error)}); copy it again.") from None
    columns = [["" if value is None else str(value) for value in column.to_pylist()] for column in table.columns]
    return [list(table.column_names), *(list(row) for row in zip(*columns, strict=True))]


def _text(data: bytes, encoding: str | None, source: str) -> list[list[str]]:
    text = _decoded(data, encoding, source).removeprefix("\ufeff")
    first = next((line for line in text.splitlines() if line.strip()), "")
    delimiter = max(_DELIMITERS, key=lambda part: len(first.split(part)))
    if delimiter not in first:
        raise DataError(f"{source}: a table of items has an id and a title; there is one column only.")
    if len(delimiter) > 1:
        text, delimiter = text.replace(delimiter, "\x1f"), "\x1f"
    quoting: Any = csv.QUOTE_MINIMAL if delimiter in ",;" else csv.QUOTE_NONE
    try:
        found: Any = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=quoting)
        return [[value.strip() for value in row] for row in found if row]
    except csv.Error as error:
        raise DataError(f"{source}: not a table of items ({error}).") from None


def _decoded(data: bytes, encoding: str | None, source: str) -> str:
    """As told, else UTF-8, else Latin-1: a title with a wrong accent is better than none."""
    try:
        return as_utf8(data, encoding, source).decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")
