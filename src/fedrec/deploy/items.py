"""The catalogue of a federation from a file that lists items, or from a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc

from fedrec.data.catalogue import catalogue
from fedrec.data.interactions import Ids, Interactions
from fedrec.data.loading import load
from fedrec.errors import DataError


def item_ids(source: str) -> Ids:
    """Distinct items in order of first appearance: of the column ``item``, or of the only column there is."""
    if source in catalogue or source == "demo":
        return load(source).item_ids
    path = Path(source)
    try:
        table = pc.read_csv(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as a list of items ({str(error).splitlines()[0]}).") from None
    if "item" not in table.column_names and len(table.column_names) != 1:
        raise DataError(f"{path} has no column 'item', but {', '.join(table.column_names)}; rename one.")
    column = table.column("item" if "item" in table.column_names else 0)
    found = tuple(dict.fromkeys(value for value in column.to_pylist() if value is not None))
    if not found:
        raise DataError(f"{path} lists no items.")
    return found if all(isinstance(value, int) for value in found) else tuple(map(str, found))


def write_interactions(path: Path, data: Interactions) -> None:
    """Interactions as a CSV file that a site can read."""
    columns: dict[str, Any] = {
        "user": [data.user_ids[code] for code in data.users],
        "item": [data.item_ids[code] for code in data.items],
    }
    if data.ratings is not None:
        columns["rating"] = data.ratings
    if data.timestamps is not None:
        columns["timestamp"] = data.timestamps
    pc.write_csv(pa.table(columns), path)
