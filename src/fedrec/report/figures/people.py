"""Who is served how well: clients with few and many items, named groups, and the spread over all clients."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import numpy as np

from fedrec.federation.result import Result, metric_title
from fedrec.report.figure import Axis, Figure, Panel, Series, Values, number, numbers
from fedrec.report.rows import Row, Section

FIFTHS = ("1 fewest", "2", "3", "4", "5 most")
CROWD = 6
"""With more rows than these, groups are drawn as lines instead of bars."""


def by_size(section: Section) -> Figure | None:
    """Five groups of clients by their number of training items."""
    panels = _panels(section, _fifths, "clients by number of training items")
    about = "Test values of five equally large groups of clients, from those with the fewest training items to those with most."
    return Figure("groups", "Clients with few and many items", about, panels) if panels else None


def named_groups(section: Section) -> Figure | None:
    """Groups the method names, such as clients of one model size."""
    panels = _panels(section, _named, "clients by what the method calls them")
    return (
        Figure("client-groups", "Groups of clients", "Test values of the groups a method names.", panels)
        if panels
        else None
    )


def distribution(section: Section) -> Figure | None:
    """Which share of the clients reaches at least a value."""
    panels = []
    for title, rows in section.panels:
        metric = next((found for row in rows if row.runs for found in [_graded(row)] if found), None)
        series = [found for row in rows if metric and (found := _reach(row, *metric)) is not None]
        if metric and series:
            name = f"{'full ' if metric[0] == 'full' else ''}{metric_title(metric[1])}"
            panels.append(
                Panel(title, Axis(f"test {name} of a client"), Axis("share of clients", share=True), tuple(series))
            )
    about = "The share of clients that reach at least the value on the horizontal axis: the further up and right, the better."
    return Figure("clients", "Distribution over clients", about, tuple(panels)) if panels else None


def metric_of(result: Result) -> str | None:
    """The metric groups are compared by: the one that selects, where groups have it."""
    chosen = result.protocol_options.select_metric
    return chosen if chosen in result.groups else next(iter(result.groups), None)


def fifths(results: Sequence[Result], metric: str) -> dict[str, list[float]]:
    """Values over seeds of each group of clients."""
    found: dict[str, list[float]] = {}
    for result in results:
        for group in result.groups.get(metric, []):
            found.setdefault(FIFTHS[group.group - 1], []).append(group.mean)
    return found


Grouped = tuple[str, dict[str, list[float]]]
"""A metric, and values over seeds by group."""


def _fifths(row: Row) -> Grouped | None:
    results = [run.result for run in row.runs]
    metric = metric_of(results[0]) if results else None
    return None if metric is None else (metric_title(metric), fifths(results, metric))


def _named(row: Row) -> Grouped | None:
    found: dict[str, list[float]] = {}
    if not row.runs:
        return None
    protocol = row.runs[0].result.protocol_options
    for run in row.runs:
        for name, group in run.result.client_groups.items():
            if group.test is not None:
                means = group.test.sampled or group.test.full
                value = means.get(protocol.select_metric, next(iter(means.values()), None))
                if value is not None and value == value:
                    found.setdefault(name, []).append(value)
    return metric_title(protocol.select_metric), found


def _panels(section: Section, values: Callable[[Row], Grouped | None], title: str) -> tuple[Panel, ...]:
    panels = []
    for place, rows in section.panels:
        known = [(row, *found) for row in rows if (found := values(row)) is not None and found[1]]
        if not known:
            continue
        names = tuple(dict.fromkeys(name for _, _, groups in known for name in groups))
        names = tuple(name for name in FIFTHS if name in names) or names
        series = tuple(_bars(row, groups, names, crowded=len(known) > CROWD) for row, _, groups in known)
        panels.append(Panel(place, Axis(title, categories=names), Axis(f"test {known[0][1]}", zero=True), series))
    return tuple(panels)


def _bars(row: Row, groups: dict[str, list[float]], names: tuple[str, ...], *, crowded: bool) -> Series:
    values = [groups.get(name, []) for name in names]
    means = [statistics.fmean(found) if found else None for found in values]
    low: Values = ()
    high: Values = ()
    if not crowded and any(len(found) > 1 for found in values):
        low, high = numbers([min(v, default=None) for v in values]), numbers([max(v, default=None) for v in values])
    return Series(row.name, "line" if crowded else "bar", names, numbers(means), row.colour, low, high)


def _graded(row: Row) -> tuple[str, str] | None:
    """The first metric that has more values than hit and miss."""
    test = row.runs[0].per_client.get("test")
    if test is None:
        return None
    kinds = (("sampled", test.sampled), ("full", test.full))
    names = [(kind, name) for kind, values in kinds for name in values]
    return next((found for found in names if not found[1].startswith("hr@")), next(iter(names), None))


def _reach(row: Row, kind: str, name: str) -> Series | None:
    seen = []
    for run in row.runs:
        test = run.per_client.get("test")
        values = {} if test is None else test.sampled if kind == "sampled" else test.full
        if name in values:
            seen.append(values[name][~np.isnan(values[name])])
    every = np.concatenate(seen) if seen else np.zeros(0)
    if not len(every):
        return None
    steps, counts = np.unique(every.round(4), return_counts=True)
    reach = counts[::-1].cumsum()[::-1] / len(every)
    if len(steps) > 200:  # nobody sees more
        kept = np.unique(np.linspace(0, len(steps) - 1, 200).astype(int))
        steps, reach = steps[kept], reach[kept]
    x, y = [number(float(v)) for v in steps], [number(float(v)) for v in reach]
    return Series(row.name, "step", tuple(v for v in x if v is not None), tuple(y), row.colour)
