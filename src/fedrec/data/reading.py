"""Reading your own data: delimited text or Parquet files, plain or packed, and data frames in memory."""

from __future__ import annotations

import glob
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fedrec.data.coding import Where, code, plain_column
from fedrec.data.columns import AUTO, ROLES, Column, Wanted
from fedrec.data.encoding import as_utf8
from fedrec.data.frames import Named, arrow_columns, brief_reason
from fedrec.data.interactions import Interactions
from fedrec.data.item_table import ItemTable, read_items
from fedrec.data.selection import Selection, selection_of
from fedrec.data.text import read_text
from fedrec.data.unpacking import content, most_bytes
from fedrec.errors import DataError, brief

_PARQUET = b"PAR1"


def read(
    source: Any,
    user: Column = AUTO,
    item: Column = AUTO,
    rating: Column | None = AUTO,
    timestamp: Column | None = AUTO,
    *,
    delimiter: str | None = None,
    header: bool | None = None,
    encoding: str | None = None,
    where: str | list[str] | tuple[str, ...] = (),
    drop_empty: bool = False,
    min_rating: float | None = None,
    min_count: int = 1,
    items: Any = None,
    name: str | None = None,
    terms: str = "",
) -> Interactions:
    """Interactions from a file, several files (a list, or a pattern such as ``logs/*.csv``), or a data frame.

    Files are delimited text or Parquet, plain or packed (gzip, bzip2, xz, zstd, zip). Frames are of pandas or
    Polars (also lazy), Arrow tables, or anything that offers itself as Arrow. Rows keep their order.

    Columns are given by name, or by position counted from 0. ``"auto"`` takes the column with a usual name
    (``user_id``, ``customer``, ``sku``, ``date``, ...; ``notes`` of what comes back says which), and None ignores
    rating or time. A text without ``header`` has a user, an item, and then a rating and a time if they look like
    it; unless told, the first line decides. Without ``delimiter`` it also decides among ``::``, tab, comma, semicolon, bar
    and space. ``encoding`` is UTF-8 unless given. White space around values is dropped.

    ``where`` takes conditions on columns (``"event=purchase,cart"``, ``"price>=10"``), all of which must hold;
    ``drop_empty`` leaves out rows without a user or an item; ``min_rating`` and ``min_count`` leave out rows that
    are rated lower, and pairs of user and item with fewer rows. ``items`` is a table of items with their titles.

    Ids are whole numbers if the entire column is, and else text. Ratings (or counts) are finite and not negative.
    Times are whole numbers of any unit ("881250949.0" too, but a fraction is refused: cutting it off would make
    up ties) or ISO dates. A rating or time column that is empty in every line counts as absent.

    Every line becomes a row, or is counted among those left out, or the file is refused. A quoted value may span
    lines (``notes`` says how many rows do) unless they look like rows that a stray quote swallowed.
    """
    chosen = selection_of(where, drop_empty, min_rating, min_count)
    wanted = Wanted(user, item, rating, timestamp, chosen.columns)
    parts = []
    if is_path(source):
        for path in paths_of(source):
            parts.append(_file(path, wanted, delimiter, header, encoding))
        name = name or parts[0].source.rsplit("/", 1)[-1].split(".")[0]
    else:
        name = name or "frame"
        parts.append(_frame(source, wanted, name))
    data = _coded(parts, chosen, name, terms)
    return data if items is None else with_items(data, items)


def read_csv(
    path: str | Path,
    user: Column = AUTO,
    item: Column = AUTO,
    rating: Column | None = AUTO,
    timestamp: Column | None = AUTO,
    delimiter: str | None = None,
    **options: Any,
) -> Interactions:
    """Interactions from a file; options as in ``read``."""
    return read(path, user, item, rating, timestamp, delimiter=delimiter, **options)


def from_frame(
    frame: Any,
    user: Column = AUTO,
    item: Column = AUTO,
    rating: Column | None = AUTO,
    timestamp: Column | None = AUTO,
    **options: Any,
) -> Interactions:
    """Interactions from a data frame; options as in ``read``. Date and time columns become numbers in their own unit."""
    if is_path(frame):
        raise DataError(f"'{brief(frame)}' is the name of a file and no data frame; use read.")
    return read(frame, user, item, rating, timestamp, **options)


def with_items(data: Interactions, items: Any) -> Interactions:
    """The same interactions with a table of their items: a file of ids, titles and more, or an ``ItemTable``."""
    table = items if isinstance(items, ItemTable) else read_items(items)
    known = sum(table.title(key) is not None for key in data.item_ids)
    if not known:
        example = (
            f"the data has ids such as '{brief(data.item_ids[0])}', the table '{brief(next(iter(table.titles), ''))}'"
        )
        raise DataError(f"{table.source}: none of the items of {data.name} is in it; {example}.")
    notes = data.notes
    if known < data.n_items:
        notes += (f"{table.source}: {known:,} of {data.n_items:,} items have a title.",)
    return replace(data, about=table, notes=notes)


def is_path(source: Any) -> bool:
    """Whether a source names files, in contrast to a table in memory."""
    return isinstance(source, str | Path) or (isinstance(source, list | tuple) and all(map(is_path, source)))


def paths_of(source: Any) -> list[Path]:
    """The files that a path, a pattern, or a list of these names."""
    if isinstance(source, list | tuple):
        found = [path for one in source for path in paths_of(one)]
        if not found:
            raise DataError("no file is named; give one at least.")
        return found
    if not any(sign in str(source) for sign in "*?[") or Path(source).exists():
        return [Path(source)]
    paths = sorted(map(Path, glob.glob(str(source), recursive=True)))
    if not (paths := [path for path in paths if path.is_file()]):
        raise DataError(f"{source}: there is no file of such a name.")
    return paths


@dataclass(frozen=True)
class _Part:
    """The columns of one file or frame, and how to speak of them."""

    source: str
    columns: dict[str, Any]
    where: Where
    notes: tuple[str, ...]


def _file(path: Path, wanted: Wanted, delimiter: str | None, header: bool | None, encoding: str | None) -> _Part:
    source, data = str(path), content(path)
    if data.startswith(_PARQUET):
        return _named(source, arrow_columns(_parquet(data, source), wanted, source))
    table = read_text(as_utf8(data, encoding, source), wanted, delimiter, header, source)

    def where(row: int, role: str) -> str:
        return f"{source}, line {table.text.line(row + table.header)}, column '{brief(table.labels[role])}'"

    notes = [f"{source}: {table.told}."] if table.told else []
    if table.long_rows:
        notes.append(f"{source}: {table.long_rows} rows have values of several lines.")
    return _Part(source, table.columns, where, tuple(notes))


def _frame(frame: Any, wanted: Wanted, name: str) -> _Part:
    return _named(name, arrow_columns(frame, wanted, name))


def _named(source: str, found: Named) -> _Part:
    def where(row: int, role: str) -> str:
        return f"{source}, row {row + 1}, column '{brief(found.labels[role])}'"

    return _Part(source, found.columns, where, (f"{source}: {found.told}.",) if found.told else ())


def _coded(parts: list[_Part], chosen: Selection, name: str, terms: str) -> Interactions:
    """Selected rows of all parts, one after the other, checked and coded."""
    notes = [note for part in _alike(parts) for note in part.notes]
    kept: list[Any] = []
    if chosen != Selection(min_count=chosen.min_count):
        for k, part in enumerate(parts):
            rows, said = chosen.rows(part.columns, part.where, part.source)
            notes += said
            kept.append(rows)
            parts[k] = replace(part, columns={role: plain_column(c).take(rows) for role, c in part.columns.items()})
    roles = [role for role in ROLES if role in parts[0].columns]
    columns = {role: _together([part.columns[role] for part in parts]) for role in roles}
    data = code(columns, _places(parts, kept), name, terms)
    return chosen.often(replace(data, notes=tuple(notes)))


def _alike(parts: list[_Part]) -> list[_Part]:
    """Parts, of which those that say the same of themselves as the first say it once."""
    first = parts[0]
    for part in parts[1:]:
        if set(part.columns) != set(first.columns):
            lists = [", ".join(sorted(one.columns)) for one in (first, part)]
            raise DataError(
                f"{part.source}: its columns are {lists[1]}, those of {first.source} {lists[0]}; name the columns."
            )
    said = [note.removeprefix(first.source) for note in first.notes]
    return [
        first,
        *(replace(p, notes=tuple(n for n in p.notes if n.removeprefix(p.source) not in said)) for p in parts[1:]),
    ]


def _together(columns: list[Any]) -> Any:
    if len(columns) == 1:
        return columns[0]
    columns = [plain_column(column) for column in columns]
    if len({column.type for column in columns}) > 1:
        columns = [_as_whole(column) for column in columns]
        columns = [column.cast(pa.large_string()) for column in columns]
    return pa.chunked_array([chunk for column in columns for chunk in column.chunks], columns[0].type)


def _as_whole(column: Any) -> Any:
    """Whole numbers that a file with gaps stores as floats: as text they would be other ids than those of the next file."""
    try:
        return column.cast(pa.int64()) if pa.types.is_floating(column.type) else column
    except pa.ArrowInvalid:
        return column


def _places(parts: list[_Part], kept: list[Any]) -> Where:
    """Where a row of all selected ones stands."""
    starts = np.cumsum([0, *(len(part.columns["user"]) for part in parts)])

    def where(row: int, role: str) -> str:
        k = int(np.searchsorted(starts, row, side="right")) - 1
        own = row - int(starts[k])
        return parts[k].where(int(kept[k][own]) if kept else own, role)

    return where


def _parquet(data: bytes, source: str) -> Any:
    try:
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        if 8 * file.metadata.num_rows * file.metadata.num_columns > most_bytes():
            raise DataError(f"{source}: {file.metadata.num_rows:,} rows are more than this machine's memory can hold.")
        return file.read(use_threads=False)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{source}: the Parquet file is damaged ({brief_reason(error)}); copy it again.") from None
