"""What a study leaves behind, as one typed object; ``study.json`` is its plain values. Documented in ``docs/studies.md``."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from fedrec.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


class CellRecord(_Record):
    """One run of the grid."""

    seed: int
    state: Literal["finished", "failed", "missing"]
    folder: str
    """Its run folder, as seen from the folder of the study."""
    config_hash: str
    split_hash: str
    why: str | None = None
    """Why there is no result."""


class ValueRecord(_Record):
    """A column of a row."""

    column: str
    mean: float | None
    """Over seeds; null where no run has the value."""
    spread: float | None
    """Standard deviation over seeds (n - 1); null with fewer than two."""
    per_seed: list[float | None]
    """In the order of the finished cells."""
    published: float | None = None
    difference: float | None = None
    """Mean minus published."""


class RowRecord(_Record):
    """A row of the table for one data set and protocol."""

    label: str
    data: str
    protocol: str
    leaks: bool
    method: str
    settings: dict[str, Any]
    """What the study sets, beside the tuned configuration."""
    sweep: dict[str, Any] = {}
    """The settings of which the study sweeps over several values, and this row's value."""
    chosen: dict[str, Any] = {}
    """The settings chosen on validation, and the choice."""
    rounds: int | None
    """Rounds of every run."""
    selected_rounds: list[int]
    values: list[ValueRecord]
    cells: list[CellRecord]
    """One per seed; of the chosen settings where there was a choice."""
    tried: int = 1
    """Combinations of settings among which validation chose."""
    seconds: float | None
    """Mean of a run, evaluation included."""
    seconds_per_round: float | None
    bytes_up: float | None
    """Per client and round."""
    bytes_down: float | None
    epsilon: float | None = None
    """Of the client with most uploads, over the run; null without a guarantee or a privacy stage."""
    privacy: str | None = None
    """What the privacy stage is worth in words; null without one."""


class TestRecord(_Record):
    """A paired comparison of a row with the reference, over users, on the mean of each user's values over seeds."""

    __test__ = False
    data: str
    protocol: str
    metric: str
    label: str
    reference: str
    users: int
    difference: float
    low: float
    high: float
    """95 % confidence interval of the difference, by bootstrap over users."""
    bootstrap_p: float
    bootstrap_holm: float
    wilcoxon_p: float
    wilcoxon_holm: float
    seeds: list[int] = []
    """Seeds that both have, over which the test is paired; empty where it was not noted."""


class StudyResult(_Record):
    """All rows of a study or comparison."""

    format: Literal[1] = 1
    kind: Literal["study", "comparison"]
    name: str
    title: str
    paper: str = ""
    note: str = ""
    columns: list[str]
    data: list[str]
    protocols: list[str]
    seeds: list[int]
    rows: list[RowRecord]
    tests: list[TestRecord] = []
    versions: dict[str, str] = {}

    @property
    def missing(self) -> list[tuple[RowRecord, CellRecord]]:
        """Every cell without a result."""
        return [(row, cell) for row in self.rows for cell in row.cells if cell.state != "finished"]

    def flat(self) -> list[dict[str, Any]]:
        """One record per row and column, for tables of other programs."""
        tests = {(test.data, test.protocol, test.label): test for test in self.tests}
        found = []
        for row in self.rows:
            test = tests.get((row.data, row.protocol, row.label))
            for value in row.values:
                found.append(
                    {
                        "study": self.name, "data": row.data, "protocol": row.protocol, "leaks": row.leaks, "row": row.label,
                        "column": value.column, "mean": value.mean, "spread": value.spread,
                        "seeds": sum(cell.state == "finished" for cell in row.cells), "published": value.published,
                        "difference": value.difference, "seconds": row.seconds, "bytes_up": row.bytes_up,
                        "bytes_down": row.bytes_down, "epsilon": row.epsilon,
                        "holm_p": None if test is None else test.bootstrap_holm,
                        "config_hash": row.cells[0].config_hash if row.cells else None,
                        "split_hash": row.cells[0].split_hash if row.cells else None,
                    }
                )  # fmt: skip
        return found

    def to_arrow(self) -> pa.Table:
        """An Arrow table: one record per row and column."""
        return arrow_table(self.flat(), FLAT)

    def to_pandas(self) -> pd.DataFrame:
        """The same as a data frame."""
        return as_pandas(self.to_arrow())

    def to_csv(self) -> str:
        """The same as comma-separated text."""
        text = io.StringIO()
        writer = csv.DictWriter(text, list(FLAT), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.flat())
        return text.getvalue()


FLAT = {
    "study": "string", "data": "string", "protocol": "string", "leaks": "bool", "row": "string", "column": "string",
    "mean": "double", "spread": "double", "seeds": "int64", "published": "double", "difference": "double",
    "seconds": "double", "bytes_up": "double", "bytes_down": "double", "epsilon": "double", "holm_p": "double",
    "config_hash": "string", "split_hash": "string",
}  # fmt: skip
"""Columns of the flat table and their types, also where a table is empty."""


def arrow_table(rows: list[dict[str, Any]], types: dict[str, str]) -> pa.Table:
    """Records with columns of stated types."""
    import pyarrow as pa

    return pa.Table.from_pylist(
        rows, schema=pa.schema([(name, pa.type_for_alias(kind)) for name, kind in types.items()])
    )


def as_pandas(table: pa.Table) -> pd.DataFrame:
    """A data frame, where pandas is installed."""
    try:
        import pandas  # noqa: F401
    except ImportError:
        raise ConfigError("data frames need pandas: pip install pandas; Arrow tables need nothing.") from None
    return table.to_pandas()
