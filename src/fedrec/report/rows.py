"""What a report is about: rows, each with its values and, where they can be found, the runs behind it."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fedrec.evaluation.evaluator import Evaluation
from fedrec.federation.result import Metrics, Result, metric_title
from fedrec.running.history import RoundLine
from fedrec.running.saved import read_per_client, read_rounds
from fedrec.running.saving import CLIENTS, SERVER
from fedrec.studies.result import CellRecord, RowRecord, StudyResult, ValueRecord


@dataclass(frozen=True, eq=False)
class SavedRun:
    """A run folder; what is large is read when it is asked for."""

    folder: Path
    result: Result

    @cached_property
    def lines(self) -> list[RoundLine]:
        """Its rounds, where it kept them."""
        return read_rounds(self.folder)

    @cached_property
    def per_client(self) -> dict[str, Evaluation]:
        """Metrics of every client."""
        return read_per_client(self.folder)

    @property
    def has_model(self) -> bool:
        """Whether model and clients' state were kept."""
        return all((self.folder / name).is_file() for name in (SERVER, CLIENTS))


@dataclass(frozen=True, eq=False)
class Row:
    """A row of the table, with a name of its own among those beside it."""

    name: str
    record: RowRecord
    runs: tuple[SavedRun, ...]
    """Over seeds."""
    colour: int = 0

    def value(self, column: str) -> ValueRecord | None:
        """Of one column."""
        return next((value for value in self.record.values if value.column == column), None)


@dataclass(frozen=True, eq=False)
class Section:
    """A study, or all runs that were given one by one."""

    key: str
    """Begins the names of its image files."""
    study: StudyResult
    rows: list[Row]

    @property
    def panels(self) -> list[tuple[str, list[Row]]]:
        """Rows by data set and protocol, which are what can be compared."""
        found: dict[tuple[str, str], list[Row]] = {}
        for row in self.rows:
            found.setdefault((row.record.data, row.record.protocol), []).append(row)
        return [(panel_title(rows[0].record), rows) for rows in found.values()]

    @property
    def metrics(self) -> list[str]:
        """Columns that hold a quality between 0 and 1, higher is better."""
        return [column for column in self.study.columns if "@" in column]


def panel_title(record: RowRecord) -> str:
    """Data set and protocol."""
    return f"{record.data}, {record.protocol}" + (" (leaks)" if record.leaks else "")


Finder = Callable[[CellRecord], SavedRun | None]
"""Finds the run of a cell."""


def section_of(study: StudyResult, find: Finder, key: str) -> Section:
    """The rows of a study with the runs that can be found."""
    rows, colours = [], {name: n for n, name in enumerate(dict.fromkeys(names_of(study)))}
    for name, record in zip(names_of(study), study.rows, strict=True):
        runs = tuple(run for cell in record.cells if cell.state == "finished" if (run := find(cell)) is not None)
        rows.append(Row(name, record, runs, colours[name]))
    return Section(key, study, rows)


def names_of(study: StudyResult) -> list[str]:
    """Labels; where one stands twice for a data set and protocol, with the values of the sweep."""
    places = [(row.data, row.protocol, row.label) for row in study.rows]
    twice = {label for *_, label in (place for place in places if places.count(place) > 1)}
    names = [f"{row.label} {said(row.sweep)}".strip() if row.label in twice else row.label for row in study.rows]
    taken: dict[tuple[str, str, str], int] = {}
    for n, row in enumerate(study.rows):
        place = (row.data, row.protocol, names[n])
        taken[place] = taken.get(place, 0) + 1
        if taken[place] > 1:
            names[n] = f"{names[n]} ({taken[place]})"
    return names


def said(settings: dict[str, Any]) -> str:
    """Settings in a few words."""
    return ", ".join(f"{name}={plain(value)}" for name, value in settings.items())


def plain(value: Any) -> str:
    """A value as it is typed, short."""
    if isinstance(value, list | tuple):
        return "-".join(map(plain, value)) or "none"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def study_of(runs: Sequence[SavedRun]) -> StudyResult:
    """Runs given one by one, in the form of a study: equal settings are one row over their seeds."""
    groups: dict[str, list[SavedRun]] = {}
    for run in runs:
        copy = 0
        while any(run.result.seed == other.result.seed for other in groups.get(_kind(run.result, copy), [])):
            copy += 1
        groups.setdefault(_kind(run.result, copy), []).append(run)
    metrics = [
        (kind, name) for kind in ("sampled", "full") for run in runs for name in list(_means(run.result.test, kind))[:2]
    ]
    metrics = list(dict.fromkeys(metrics))
    labels = _labels(list(groups.values()))
    records = [_record(label, group, metrics) for label, group in zip(labels, groups.values(), strict=True)]
    return StudyResult(
        kind="comparison", name="runs", title="Runs", columns=[_title(*metric) for metric in metrics],
        data=list(dict.fromkeys(r.data for r in records)), protocols=list(dict.fromkeys(r.protocol for r in records)),
        seeds=sorted({run.result.seed for run in runs}), rows=records,
    )  # fmt: skip


def _kind(result: Result, copy: int) -> str:
    protocol = result.protocol_options.model_dump(mode="json")
    return json.dumps([result.data, protocol, result.config_hash, result.rounds, copy], sort_keys=True)


def _labels(groups: list[list[SavedRun]]) -> list[str]:
    """Labels of rows; equal ones with the settings in which they differ, or with their folders."""
    results = [group[0].result for group in groups]
    labels = [result.shown_label for result in results]
    found = []
    for n, (result, label) in enumerate(zip(results, labels, strict=True)):
        same = [r for r, other in zip(results, labels, strict=True) if other == label and r.data == result.data]
        same = [r for r in same if r.protocol == result.protocol]
        facts = _facts(result)
        differing = {k: v for k, v in facts.items() if any(_facts(r).get(k) != v for r in same)}
        if len(same) == 1:
            found.append(label)
        elif set(differing) == {"noise"}:
            found.append(label if result.privacy is None else f"{label}, {differing['noise']}")
        elif differing and len(differing) <= 3:
            found.append(f"{label} ({said(differing)})")
        else:
            found.append(f"{label} ({groups[n][0].folder.name})")
    return [name if found.count(name) == 1 else f"{name} ({groups[n][0].folder.name})" for n, name in enumerate(found)]


def _facts(result: Result) -> dict[str, Any]:
    noise = result.privacy
    words = "none" if noise is None else f"{noise.mechanism} noise {noise.scale:g}"
    return result.config | {"rounds": result.rounds, "noise": words}


def _record(label: str, runs: list[SavedRun], metrics: list[tuple[str, str]]) -> RowRecord:
    results = [run.result for run in runs]
    first = results[0]
    values = []
    for kind, name in metrics:
        seen = [_means(result.test, kind).get(name) for result in results]
        values.append(spread_over(_title(kind, name), [None if v is None or math.isnan(v) else v for v in seen]))
    return RowRecord(
        label=label, data=first.data, protocol=first.protocol, leaks=first.leaks, method=first.method, settings={},
        rounds=first.rounds, selected_rounds=[result.selected_round for result in results], values=values,
        cells=[
            CellRecord(seed=run.result.seed, state="finished", folder=run.folder.as_posix(),
                       config_hash=run.result.config_hash, split_hash=run.result.split_hash)
            for run in runs
        ],
        seconds=statistics.fmean(r.seconds.total for r in results),
        seconds_per_round=statistics.fmean(r.seconds.per_round for r in results),
        bytes_up=statistics.fmean(r.bytes.up_per_client_round for r in results),
        bytes_down=statistics.fmean(r.bytes.down_per_client_round for r in results),
        epsilon=None if first.privacy is None else first.privacy.epsilon_total,
        privacy=None if first.privacy is None else first.privacy.verdict,
    )  # fmt: skip


def spread_over(column: str, values: list[float | None]) -> ValueRecord:
    """Mean and spread over seeds."""
    known = [value for value in values if value is not None]
    mean = statistics.fmean(known) if known else None
    spread = statistics.stdev(known) if len(known) > 1 else None
    return ValueRecord(column=column, mean=mean, spread=spread, per_seed=values)


def _means(metrics: Metrics, kind: str) -> dict[str, float]:
    return metrics.sampled if kind == "sampled" else metrics.full


def _title(kind: str, name: str) -> str:
    return f"full {metric_title(name)}" if kind == "full" else metric_title(name)


def renamed(section: Section, key: str) -> Section:
    """With another key."""
    return replace(section, key=key)
