"""Values over a setting the study sweeps: merging weight, depth of the adapter, alpha, sizes."""

from __future__ import annotations

from collections.abc import Sequence

from fedrec.federation.result import metric_title
from fedrec.report.figure import Axis, Figure, Panel, Series, Values, X, number, numbers
from fedrec.report.figures.people import FIFTHS, fifths, metric_of
from fedrec.report.rows import Row, Section, plain, said
from fedrec.studies.result import RowRecord

MOST = 2


def over_settings(section: Section) -> list[Figure]:
    """One figure for each of the first metrics."""
    found = []
    for place, column in enumerate(section.metrics[:MOST], 1):
        panels = []
        for title, rows in section.panels:
            groups, rest = _groups(rows), [row for row in rows if not row.record.sweep]
            if not groups:
                continue
            name, categories = _axis([row for group in groups.values() for row in group])
            series = [
                _line(label, group, name, column, categories, n) for n, (label, group) in enumerate(groups.items())
            ]
            levels = [
                Series(row.name, "level", (), (number(value.mean),), len(groups) + n)
                for n, row in enumerate(rest)
                if (value := row.value(column)) and value.mean is not None
            ]
            panels.append(Panel(title, Axis(name, categories=categories), Axis(f"test {column}"), (*series, *levels)))
        if panels:
            about = "Test values over a setting. Bands are the standard deviation over seeds; dashed: rows without the setting."
            found.append(Figure(f"sweep-{place}", f"{column} over {panels[0].x.title}", about, tuple(panels)))
    return found


def sparsity_over_settings(section: Section) -> Figure | None:
    """Five groups of clients by their number of training items, over the setting."""
    panels = []
    for title, rows in section.panels:
        for label, group in _groups(rows).items():
            known = [row for row in group if row.runs and row.runs[0].result.groups]
            if len(known) < 2:
                continue
            name, categories = _axis(known)
            metric = metric_of(known[0].runs[0].result) or ""
            values = [fifths([run.result for run in row.runs], metric) for row in known]
            at = _places(known, name, categories)
            series = tuple(
                Series(fifth, "line", at, numbers([_mean(value.get(fifth)) for value in values]), n)
                for n, fifth in enumerate(FIFTHS)
            )
            place = f"{title}: {label}" if len(_groups(rows)) > 1 else title
            panels.append(Panel(place, Axis(name, categories=categories), Axis(f"test {metric_title(metric)}"), series))
    about = (
        "Five equally large groups of clients, from those with the fewest training items (1) to those with most (5)."
    )
    return (
        Figure("sweep-groups", f"Clients with few and many items, over {panels[0].x.title}", about, tuple(panels))
        if panels
        else None
    )


def _groups(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows that differ in one setting: a line each, by the name of the line."""
    name = _swept(rows)
    found: dict[str, list[Row]] = {}
    for row in rows:
        if name in row.record.sweep:
            others = {key: value for key, value in row.record.sweep.items() if key != name}
            fixed = {key: value for key, value in row.record.settings.items() if key != name}
            key = f"{row.record.method} {sorted(map(str, fixed.items()))} {sorted(map(str, others.items()))}"
            found.setdefault(key, []).append(row)
    named: dict[str, list[Row]] = {}
    for group in found.values():
        others = {key: value for key, value in group[0].record.sweep.items() if key != name}
        label = ", ".join(filter(None, (_base(group[0].record), said(others))))
        named[label if label not in named else f"{label} ({len(named) + 1})"] = group
    return named


def _base(record: RowRecord) -> str:
    """The label without the values of the sweep, which follow it."""
    return record.label.split(f", {next(iter(record.sweep))}=")[0]


def _swept(rows: Sequence[Row]) -> str:
    """The setting with most values."""
    values: dict[str, set[str]] = {}
    for row in rows:
        for name, value in row.record.sweep.items():
            values.setdefault(name, set()).add(plain(value))
    return max(values, key=lambda name: len(values[name]), default="")


def _axis(rows: Sequence[Row]) -> tuple[str, tuple[str, ...]]:
    """The setting, and its values where they are no numbers."""
    name = _swept(rows)
    values = [row.record.sweep[name] for row in rows]
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return name, ()
    return name, tuple(dict.fromkeys(map(plain, values)))


def _places(rows: Sequence[Row], name: str, categories: tuple[str, ...]) -> tuple[X, ...]:
    values = [row.record.sweep[name] for row in rows]
    return tuple(plain(value) if categories else float(value) for value in values)


def _line(label: str, rows: list[Row], name: str, column: str, categories: tuple[str, ...], colour: int) -> Series:
    if not categories:
        rows = sorted(rows, key=lambda row: float(row.record.sweep[name]))
    values = [row.value(column) for row in rows]
    means = numbers([None if value is None else value.mean for value in values])
    spreads = [0.0 if value is None else value.spread or 0.0 for value in values]
    low: Values = ()
    high: Values = ()
    if any(spreads):
        low, high = (
            numbers([None if m is None else m + sign * s for m, s in zip(means, spreads, strict=True)])
            for sign in (-1, 1)
        )
    return Series(label, "line", _places(rows, name, categories), means, colour, low, high)


def _mean(values: list[float] | None) -> float | None:
    return sum(values) / len(values) if values else None
