"""A study is data: the rows, columns, data sets and protocols of a published table or figure, read from a short TOML file."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from fedrec.errors import ConfigError, unknown
from fedrec.federation.config import validated
from fedrec.federation.privacy import Privacy
from fedrec.settings import Settings

Choice = dict[str, list[Any]]
"""Values to try, by the name of a setting."""


class Column(Settings):
    """A value every row shows."""

    title: str
    """As the column is headed."""
    value: str
    """A metric of the test part (``hr@10`` on sampled candidates where there are any, ``full ndcg@10``), or a path in
    ``result.json``, such as ``bytes.up_per_client_round``."""


class Row(Settings):
    """A method with its settings."""

    label: str
    """Name of the row."""
    method: str
    """Name of a method."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings that win over those tuned for the protocol and data set."""
    under: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Further settings under one protocol, by its name."""
    merge: str | None = None
    """How clients merge the table they download, for any method that downloads one."""
    privacy: Privacy | None = None
    """Local differential privacy on uploads."""
    rounds: int | None = Field(None, ge=0)
    """Rounds of this row; by default those of the study."""
    evaluate_every: int | None = Field(None, ge=1)
    """Rounds between evaluations of this row; by default those of the study."""
    data: tuple[str, ...] | None = None
    """Data sets of this row; by default those of the study."""
    protocols: tuple[str, ...] | None = None
    """Protocols of this row; by default those of the study."""
    sweep: Choice = Field(default_factory=dict)
    """Settings of which every combination is a row of its own."""
    choose: Choice | None = None
    """Settings of which every combination is run, and the best on validation is shown; by default those of the study."""
    keep_model: bool = False
    """Keep models and clients' tables of the runs, which figures of tables need."""
    published: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    """Published values by data set, in the order of the columns; those of the last columns may be left out."""


class Study(Settings):
    """A declared grid of runs."""

    name: str
    """Name of the study."""
    title: str
    """What the table or figure shows."""
    paper: str = ""
    """Where it was published."""
    note: str = ""
    """What a reader must know about the values."""
    data: tuple[str, ...]
    """Data sets."""
    protocols: tuple[str, ...]
    """Protocols; published values stand beside the first one."""
    columns: tuple[Column, ...]
    """Values of every row."""
    rows: tuple[Row, ...] = Field(min_length=1)
    """Methods and settings."""
    seeds: int = Field(1, ge=1)
    """Seeds of every run; they change the split as well."""
    rounds: int | None = Field(None, ge=0)
    """Rounds under the first protocol; elsewhere, and without it, as many as the method has."""
    evaluate_every: int | None = Field(None, ge=1)
    """Rounds between evaluations; by default 5, and 1 for methods whose rounds are choices (blend). Where a protocol chooses its
    round on test, every round is evaluated."""
    choose: Choice | None = None
    """Settings every row chooses on validation, the same budget for all."""
    tested: bool = False
    """Test every row against the best one on validation, paired over users."""

    @model_validator(mode="after")
    def _consistent(self) -> Study:
        for row in self.rows:
            for what, given in (("data sets", row.published), ("data sets", row.data), ("protocols", row.protocols)):
                known = self.protocols if what == "protocols" else self.data
                for name in given or ():
                    if name not in known:
                        raise ValueError(
                            f"row '{row.label}' names '{name}', which is not among the {what} of the study"
                        )
            if any(len(values) > len(self.columns) for values in row.published.values()):
                raise ValueError(f"row '{row.label}' has more published values than there are columns")
        labels = [row.label for row in self.rows]
        if len(set(labels)) < len(labels):
            raise ValueError(f"two rows are called '{next(x for x in labels if labels.count(x) > 1)}'")
        return self

    @property
    def cells(self) -> int:
        """Runs of the whole study."""
        return _count(self)


def _count(study: Study) -> int:
    """Cells of the whole study."""
    cells = 0
    for row in study.rows:
        places = len(row.data or study.data) * len(row.protocols or study.protocols)
        choose = row.choose if row.choose is not None else study.choose
        cells += places * len(combinations(row.sweep)) * len(combinations(choose)) * study.seeds
    return cells


def names() -> list[str]:
    """All studies that come with the package."""
    return sorted(path.name.removesuffix(".toml") for path in _folder().iterdir() if path.name.endswith(".toml"))


def find(name: str) -> Study:
    """A study by name, or from a file of one's own."""
    if name.endswith(".toml"):
        try:
            return parse(Path(name).read_text(encoding="utf-8"), Path(name).stem)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the study {name} cannot be read ({error}); check its path.") from None
    if name not in names():
        raise ConfigError(unknown("study", name, names()))
    return parse((_folder() / f"{name}.toml").read_text(encoding="utf-8"), name)


def parse(text: str, name: str) -> Study:
    """A study from TOML; a key it does not know or a value it cannot have is one sentence."""
    owner = f"study {name}"
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{owner} is no TOML: {error}.") from None
    rows, columns = values.get("rows", []), values.get("columns", [])
    if not (isinstance(rows, list) and all(isinstance(row, dict) for row in rows)):
        raise ConfigError(f"{owner}: rows are tables, written [[rows]].")
    if not (isinstance(columns, list) and all(isinstance(each, str | dict) for each in columns)):
        raise ConfigError(f"{owner}: columns are a list of texts, such as hr@10, or of tables with title and value.")
    values["columns"] = [
        validated(Column, f"{owner}, column {n}", given) if isinstance(given, dict) else column(given)
        for n, given in enumerate(columns, 1)
    ]
    values["rows"] = [validated(Row, f"{owner}, row {row.get('label', n)}", row) for n, row in enumerate(rows, 1)]
    return validated(Study, owner, {"name": name} | values)


def combinations(choice: Choice | None) -> list[dict[str, Any]]:
    """Every combination of the values of some settings; the empty one where there is nothing to choose."""
    choice = choice or {}
    return [dict(zip(choice, values, strict=True)) for values in product(*choice.values())]


def column(text: str) -> Column:
    """``hr@10`` is headed HR@10; a path is headed as it is."""
    from fedrec.federation.result import metric_title

    kind, _, metric = text.rpartition(" ")
    title = " ".join(filter(None, (kind, metric_title(metric)))) if "@" in text and "." not in text else text
    return Column(title=title, value=text)


def _folder() -> Any:
    return files(__package__) / "published"
