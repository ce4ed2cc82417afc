"""Columns of a table in memory, whatever library made it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fedrec.data.columns import Wanted
from fedrec.errors import DataError

_SAMPLE = 100


@dataclass(frozen=True)
class Named:
    """Arrow columns and their names by role, and which were taken where that was not asked for."""

    columns: dict[str, Any]
    labels: dict[str, str]
    told: str | None


def arrow_columns(frame: Any, wanted: Wanted, source: str) -> Named:
    """The wanted columns; others are left alone, they may hold what Arrow cannot."""
    try:
        frame, labels = _labelled(frame)
        names = None if labels and all(type(label) is int for label in labels) else [str(label) for label in labels]
        sample = _sample(frame, labels) if names is None else []
        positions = wanted.positions(names, len(labels), source, sample)
        chosen = {role: labels[k] for role, k in positions.items()}
        if _is_lazy(frame):  # which reads only what it is asked for
            frame = frame.select(list(dict.fromkeys(chosen.values()))).collect()
        columns = {role: _arrow(frame[label]) for role, label in chosen.items()}
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise DataError(f"{source}: this is not a table that Arrow can hold ({brief_reason(error)}).") from None
    if not len(columns["user"]):
        raise DataError(f"{source}: the table has no rows.")
    return Named(columns, {role: str(label) for role, label in chosen.items()}, wanted.told(names, positions))


def _labelled(frame: Any) -> tuple[Any, list[Any]]:
    """A frame and the labels of its columns."""
    if _is_lazy(frame):
        return frame, list(frame.collect_schema().names())
    if isinstance(frame, pa.Table | pa.RecordBatch) or not hasattr(frame, "columns"):
        frame = pa.table(frame)
        return frame, frame.column_names
    return frame, list(frame.columns)


def _is_lazy(frame: Any) -> bool:
    return hasattr(frame, "collect") and hasattr(frame, "collect_schema")


def _sample(frame: Any, labels: list[Any]) -> list[list[str]]:
    columns = [[str(value) for value in _arrow(frame[label][:_SAMPLE]).to_pylist()] for label in labels[:4]]
    return [list(row) for row in zip(*columns, strict=True)]


def _arrow(values: Any) -> Any:
    if not isinstance(values, pa.ChunkedArray):
        # pandas Series go through pa.array, which takes NaN for a missing value as pandas does.
        is_arrow = hasattr(values, "__arrow_c_stream__") and not hasattr(values, "iloc")
        values = pa.chunked_array(values) if is_arrow else pa.array(values, from_pandas=True)
    return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])


def brief_reason(error: Exception) -> str:
    """The first line of what a library says."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
