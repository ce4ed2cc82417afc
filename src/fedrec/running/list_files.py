"""Recommendations as a CSV or Parquet file, written batch by batch and whole or not there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from fedrec.errors import ConfigError
from fedrec.running.files import writing
from fedrec.running.recommending import Id, Lists

ENDS = (".csv", ".parquet")


def check_name(path: Path) -> Path:
    """The end of a name says which kind of file it is."""
    if path.suffix not in ENDS:
        raise ConfigError(
            f"{path}: recommendations are written as {' or '.join(ENDS)}; end the name with one of these."
        )
    return path


def write_lists(
    path: Path,
    found: Iterable[Lists],
    users: Sequence[Id],
    items: Sequence[Id],
    titles: Callable[[Id], str | None] | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> int:
    """Rows of user, rank, item, score and, with ``titles``, title; returns how many. ``progress`` is told of every batch."""
    user_ids, item_ids = _array(users), _array(items)
    names = None if titles is None else pa.array([titles(item) or "" for item in items], pa.string())
    fields = [("user", user_ids.type), ("rank", pa.int32()), ("item", item_ids.type), ("score", pa.float64())]
    schema = pa.schema([*fields, *([("title", pa.string())] if names is not None else [])])
    total = 0
    with writing(check_name(path)) as part:
        kind: Any = pq.ParquetWriter if path.suffix == ".parquet" else pacsv.CSVWriter
        with kind(str(part), schema) as writer:
            for some in found:
                rows, columns = np.nonzero(some.items >= 0)
                chosen = pa.array(some.items[rows, columns])
                cells = [user_ids.take(pa.array(some.clients[rows])), pa.array(columns + 1, pa.int32())]
                cells += [item_ids.take(chosen), pa.array(some.scores[rows, columns])]
                cells += [names.take(chosen)] if names is not None else []
                writer.write_table(pa.Table.from_arrays(cells, schema=schema))
                total += len(rows)
                progress(len(some.clients))
    return total


def _array(ids: Sequence[Id]) -> Any:
    return pa.array(list(ids), pa.int64() if all(isinstance(key, int) for key in ids) else pa.string())
