"""Reading your own data: delimited text or Parquet files, plain or gzipped, and data frames in memory."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fedrec.data.coding import code
from fedrec.data.columns import AUTO, Column, Wanted
from fedrec.data.interactions import Interactions
from fedrec.data.text import read_text
from fedrec.errors import DataError, brief

_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"
_PACKED_AT_MOST = 1032  # times smaller than what was packed; the format allows no more


def read_csv(
    path: str | Path,
    user: Column = "user",
    item: Column = "item",
    rating: Column | None = AUTO,
    timestamp: Column | None = AUTO,
    delimiter: str | None = None,
    *,
    header: bool = True,
    name: str | None = None,
    terms: str = "",
) -> Interactions:
    """Interactions from a delimited text or Parquet file, plain or gzipped, rows in file order.

    Columns are given by name, or by position counted from 0 (the only way with ``header=False``).
    ``"auto"`` takes the column called "rating" or "timestamp" if there is one; None ignores it. Without
    ``delimiter`` the first line decides among ``::``, tab, comma, semicolon, bar and space. White space
    around values is dropped.

    Ids are whole numbers if the entire column is, and else text. Ratings are finite and not negative.
    Timestamps are whole numbers of any unit ("881250949.0" too, but a fraction is refused: cutting it off
    would make up ties). A rating or timestamp column that is empty in every line counts as absent.

    Every line becomes a row or the file is refused. A quoted value may span lines (``notes`` of what comes back
    says how many rows do) unless they look like rows that a stray quote swallowed.
    """
    source, wanted = str(path), Wanted(user, item, rating, timestamp)
    data = _content(Path(path))
    name = name or Path(path).name.split(".")[0]
    if data.startswith(_PARQUET):
        columns, labels = _arrow_columns(_parquet(data, source), wanted, source)
        return code(columns, lambda row, role: f"{source}, row {row + 1}, column '{brief(labels[role])}'", name, terms)
    table = read_text(data, wanted, delimiter, header, source)

    def where(row: int, role: str) -> str:
        return f"{source}, line {table.text.line(row + header)}, column '{brief(table.labels[role])}'"

    notes = (f"{source}: {table.long_rows} rows have values of several lines.",) if table.long_rows else ()
    return replace(code(table.columns, where, name, terms), notes=notes)


def from_frame(
    frame: Any,
    user: Column = "user",
    item: Column = "item",
    rating: Column | None = AUTO,
    timestamp: Column | None = AUTO,
    *,
    name: str = "frame",
) -> Interactions:
    """Interactions from a pandas or Polars frame, an Arrow table, or anything that offers itself as Arrow.

    Columns as in :func:`read_csv`. Date and time columns become whole numbers in their own unit.
    """
    columns, labels = _arrow_columns(frame, Wanted(user, item, rating, timestamp), name)
    return code(columns, lambda row, role: f"{name}, row {row + 1}, column '{brief(labels[role])}'", name)


def _content(path: Path) -> bytes:
    """The bytes of a file, unpacked if they are gzipped, whatever its name."""
    try:
        data = path.read_bytes()
    except IsADirectoryError:
        raise DataError(f"{path}: this is a folder; name the file in it.") from None
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file.") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise DataError(f"{path}: the file cannot be read ({reason}).") from None
    if not data:
        raise DataError(f"{path}: the file is empty.")
    if not data.startswith(_GZIP):
        if path.suffix == ".gz":
            raise DataError(f"{path}: not a gzip file in spite of its name; rename it or pack it with gzip.")
        return data
    try:
        if len(data) * _PACKED_AT_MOST > _most_bytes():
            _require_room(path, data)
        return gzip.decompress(data)
    except EOFError:
        raise DataError(f"{path}: the gzip file is cut short; copy or download it again.") from None
    except (OSError, zlib.error) as error:
        raise DataError(f"{path}: the gzip file is damaged ({error}); copy or download it again.") from None


def _require_room(path: Path, packed: bytes) -> None:
    """Refuse a file that unpacks to more than memory can hold, before it is held."""
    unpacked, most = 0, _most_bytes()
    with gzip.open(io.BytesIO(packed)) as file:
        while piece := file.read(1 << 24):
            unpacked += len(piece)
            if unpacked > most:
                raise DataError(
                    f"{path}: unpacks to more than {most:,} bytes, half of this machine's memory; split it."
                )


def _most_bytes() -> int:
    """The most bytes of rows it makes sense to read here."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _parquet(data: bytes, source: str) -> Any:
    try:
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        if 8 * file.metadata.num_rows * file.metadata.num_columns > _most_bytes():
            raise DataError(f"{source}: {file.metadata.num_rows:,} rows are more than this machine's memory can hold.")
        return file.read(use_threads=False)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{source}: the Parquet file is damaged ({_brief(error)}); copy it again.") from None


def _arrow_columns(frame: Any, wanted: Wanted, source: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Arrow columns and names by role; other columns are left alone, they may hold what Arrow cannot."""
    try:
        if isinstance(frame, pa.Table | pa.RecordBatch) or not hasattr(frame, "columns"):
            frame = pa.table(frame)
            labels: list[Any] = frame.column_names
        else:
            labels = list(frame.columns)
        names = [str(label) for label in labels]
        positions = wanted.positions(names, len(names), source)
        columns = {role: _arrow(frame[labels[k]]) for role, k in positions.items()}
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise DataError(f"{source}: this is not a table that Arrow can hold ({_brief(error)}).") from None
    if not len(columns["user"]):
        raise DataError(f"{source}: the table has no rows.")
    return columns, {role: names[k] for role, k in positions.items()}


def _arrow(values: Any) -> Any:
    if not isinstance(values, pa.ChunkedArray):
        # pandas Series go through pa.array, which takes NaN for a missing value as pandas does.
        is_arrow = hasattr(values, "__arrow_c_stream__") and not hasattr(values, "iloc")
        values = pa.chunked_array(values) if is_arrow else pa.array(values, from_pandas=True)
    return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])


def _brief(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
