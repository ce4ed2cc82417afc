"""The table as bars: ours with its spread, beside what was published."""

from __future__ import annotations

from fedrec.report.figure import Axis, Figure, Panel, Series, Values, number, numbers
from fedrec.report.rows import Row, Section

MOST = 2
"""Columns that are drawn; the table has all."""


def bars(section: Section) -> list[Figure]:
    """One figure for each of the first metrics, where there is anything to compare."""
    if len(section.rows) < 2 or all(len(set(row.record.sweep)) for row in section.rows):
        return []
    found = []
    for place, column in enumerate(section.metrics[:MOST], 1):
        drawn = [_panel(title, rows, column) for title, rows in section.panels]
        panels = tuple(panel for panel in drawn if panel is not None)
        if panels:
            known = any(series.name == "published" for panel in panels for series in panel.series)
            about = "Test values at the selected round" + ("; diamonds are published." if known else ".")
            about += " Lines are the standard deviation over seeds." if any(p.series[0].low for p in panels) else ""
            striped = any(series.marked for panel in panels for series in panel.series)
            about += " Striped bars leak and cannot be compared with plain ones." if striped else ""
            found.append(Figure(f"table-{place}", f"Test {column}", about, panels))
    return found


def _panel(title: str, rows: list[Row], column: str) -> Panel | None:
    known = [(row, value) for row in rows if (value := row.value(column)) and value.mean is not None]
    if not known:
        return None
    names = tuple(row.name for row, _ in known)
    means = numbers([value.mean for _, value in known])
    low: Values = ()
    high: Values = ()
    if any(value.spread is not None for _, value in known):
        low, high = (
            numbers([None if v.spread is None or v.mean is None else v.mean + sign * v.spread for _, v in known])
            for sign in (-1, 1)
        )
    leaks = tuple(row.record.leaks for row, _ in known) if any(row.record.leaks for row, _ in known) else ()
    series = [Series("ours", "bar", names, means, 0, low, high, leaks)]
    published = [number(value.published) for _, value in known]
    if any(value is not None for value in published):
        series.append(Series("published", "point", names, tuple(published)))
    return Panel(title, Axis("", categories=names), Axis(column, zero=True), tuple(series), sideways=True)
