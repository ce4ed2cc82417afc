"""Quality over rounds, as the protocol shows it while it trains."""

from __future__ import annotations

from fedrec.federation.result import metric_title
from fedrec.protocol.protocol import Protocol
from fedrec.report.figure import Axis, Figure, Panel, Series, number
from fedrec.report.rows import Row, SavedRun, Section
from fedrec.running.history import RoundLine


def convergence(section: Section) -> Figure | None:
    """One line per row, the mean over its seeds."""
    panels = []
    for title, rows in section.panels:
        curves = [(row, _curve(row)) for row in rows]
        series = [_series(row, curve) for row, curve in curves if len(curve) > 1]
        if series:
            protocol = next(row.runs[0].result.protocol_options for row in rows if row.runs)
            panels.append(Panel(title, Axis("round"), Axis(_title(protocol)), tuple(series)))
    if not panels:
        return None
    seeds = any(series.low for panel in panels for series in panel.series)
    about = "Quality of the rounds that were evaluated, on the part and metric by which the protocol selects a round."
    about += " Bands span the seeds." if seeds else ""
    return Figure("convergence", "Convergence", about, tuple(panels))


def _title(protocol: Protocol) -> str:
    kind = "full " if protocol.select_ranking == "full" else ""
    return f"{protocol.select_on} {kind}{metric_title(protocol.select_metric)}"


def _curve(row: Row) -> dict[int, list[float]]:
    """Values over seeds, in rounds that every seed evaluated."""
    curves = [
        {line["round"]: value for line in run.lines if (value := _shown(run, line)) is not None} for run in row.runs
    ]
    curves = [curve for curve in curves if curve]
    common = set.intersection(*map(set, curves)) if curves else set()
    return {round: [curve[round] for curve in curves] for round in sorted(common)}


def _shown(run: SavedRun, line: RoundLine) -> float | None:
    protocol = run.result.protocol_options
    part = line.get("test") if protocol.select_on == "test" else line.get("validation")
    return None if part is None else part.get(protocol.select_ranking, {}).get(protocol.select_metric)


def _series(row: Row, curve: dict[int, list[float]]) -> Series:
    values = list(curve.values())
    several = len(values[0]) > 1
    return Series(
        row.name, "line", tuple(curve), tuple(number(sum(v) / len(v)) for v in values), row.colour,
        tuple(number(min(v)) for v in values) if several else (), tuple(number(max(v)) for v in values) if several else (),
    )  # fmt: skip
