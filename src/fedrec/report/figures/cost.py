"""What quality costs: bytes a client sends and receives, and the privacy budget."""

from __future__ import annotations

from fedrec.report.figure import Axis, Figure, Panel, Series, number
from fedrec.report.rows import Row, Section


def by_bytes(section: Section) -> Figure | None:
    """Quality over bytes per client and round; without communication a level."""
    panels = []
    for title, rows in section.panels:
        series = [found for row in rows if (found := _by_bytes(row, section.metrics)) is not None]
        if any(found.kind == "point" for found in series):
            x = Axis("KB per client and round, up and down", log=True)
            panels.append(Panel(title, x, Axis(f"test {section.metrics[0]}"), tuple(series)))
    about = "Bytes that cross between a client and the server in a round, in both directions, against quality."
    about += " Dashed: rows that send nothing in a round." if _dashed(panels) else ""
    return Figure("bytes", "Bytes against quality", about, tuple(panels)) if panels else None


def by_epsilon(section: Section) -> Figure | None:
    """Quality over the privacy budget of a run; without a guarantee a level. Only where a row has a budget."""
    panels = []
    for title, rows in section.panels:
        if any(row.record.epsilon is not None for row in rows):
            series = [found for row in rows if (found := _by_epsilon(row, section.metrics)) is not None]
            x = Axis("epsilon over the whole run (less is more private)", log=True)
            panels.append(Panel(title, x, Axis(f"test {section.metrics[0]}"), tuple(series)))
    about = "Privacy budget of the client with most uploads, against quality."
    about += " Dashed: rows without a guarantee." if _dashed(panels) else ""
    return Figure("epsilon", "Epsilon against quality", about, tuple(panels)) if panels else None


def _dashed(panels: list[Panel]) -> bool:
    return any(series.kind == "level" for panel in panels for series in panel.series)


def _quality(row: Row, metrics: list[str]) -> float | None:
    value = row.value(metrics[0]) if metrics else None
    return None if value is None else number(value.mean)


def _by_bytes(row: Row, metrics: list[str]) -> Series | None:
    up, down = row.record.bytes_up, row.record.bytes_down
    if up is None or down is None:
        return None
    return _at(row, (up + down) / 1e3, _quality(row, metrics))


def _by_epsilon(row: Row, metrics: list[str]) -> Series | None:
    return _at(row, row.record.epsilon or 0.0, _quality(row, metrics))


def _at(row: Row, x: float, y: float | None) -> Series | None:
    if y is None:
        return None
    value = number(x)
    if not value:
        return Series(row.name, "level", (), (y,), row.colour)
    return Series(row.name, "point", (value,), (y,), row.colour)
