"""Figures as PNG and SVG files, the same ones the page draws. Equal figures give equal files."""

from __future__ import annotations

import math
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrec.errors import ConfigError
from fedrec.report import palette
from fedrec.report.figure import Axis, Figure, Panel, Series, Values
from fedrec.running.files import writing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKERS = {"circle": "o", "square": "s", "diamond": "D", "triangle-up": "^"}
LINES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
STYLE = {
    "font.family": "DejaVu Sans", "font.size": 9, "axes.edgecolor": palette.FAINT, "axes.labelcolor": palette.INK,
    "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True, "grid.color": palette.GRID,
    "xtick.color": palette.INK, "ytick.color": palette.INK, "text.color": palette.INK, "text.parse_math": False,
    "svg.hashsalt": "fedrec", "svg.fonttype": "none", "figure.dpi": 100, "savefig.dpi": 160, "hatch.linewidth": 1.5,
}  # fmt: skip
COLUMNS = 3


def save(figure: Figure, path: Path) -> None:
    """Write a figure; the ending of the path says as what."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure as Canvas
    except ImportError:
        raise ConfigError("image files need matplotlib: pip install 'fedrec[report]'.") from None
    with rc_context(STYLE):
        columns = min(COLUMNS, len(figure.panels))
        rows = math.ceil(len(figure.panels) / columns)
        height = max(_height(panel) for panel in figure.panels)
        canvas = Canvas(figsize=(max(6.0, 4.2 * columns), height * rows + 0.9), layout="constrained")
        places = canvas.subplots(rows, columns, squeeze=False).flat
        longest = max(len(panel.x.categories) for panel in figure.panels)
        for panel, place in zip(figure.panels, places, strict=False):
            _draw(place, panel, longest)
        for place in list(places):
            place.set_visible(False)
        canvas.suptitle(figure.title, fontsize=12, fontweight="bold", x=0.01, ha="left")
        handles = [(series.name, _key(series)) for series in figure.legend]
        names = [name for name, _ in handles]
        if names != ["ours"]:
            canvas.legend(
                [key for _, key in handles], names, loc="outside lower left", ncols=min(4, len(names)), frameon=False
            )
        kind = path.suffix.lstrip(".")
        with writing(path) as part:
            canvas.savefig(part, format=kind, metadata={"Date": None} if kind == "svg" else {"Software": None})


def _height(panel: Panel) -> float:
    return 0.9 + 0.33 * len(panel.x.categories) if panel.sideways else 3.2


def _draw(place: Axes, panel: Panel, longest: int) -> None:
    place.set_title(panel.title, fontsize=10, loc="left")
    place.grid(True)
    bars = [series for series in panel.series if series.kind == "bar"]
    for n, series in enumerate(bars):
        _bars(place, panel, series, (n - (len(bars) - 1) / 2) * 0.8 / len(bars), 0.75 / len(bars))
    for series in panel.series:
        if series.kind == "level":
            place.axhline(series.y[0] or 0.0, color=_colour(series), linestyle="--", linewidth=1.6)
        elif series.kind == "point":
            _points(place, panel, series)
        elif series.kind in ("line", "step"):
            _line(place, panel, series)
    if panel.sideways:
        _names(place.yaxis, panel.x.categories, 28)
        place.set_ylim(longest - 0.4, -0.6)
        place.set_xlim(left=0)
        place.locator_params(axis="x", nbins=5)
    else:
        _axis(place, panel.x, "x")
        _axis(place, panel.y, "y")
    if panel.x.hidden:
        place.set_axis_off()


def _axis(place: Axes, axis: Axis, which: str) -> None:
    getattr(place, f"set_{which}label")(axis.title)
    if axis.categories:
        _names(place.xaxis, axis.categories, 11)
    if axis.log:
        getattr(place, f"set_{which}scale")("log")
        from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

        ticks = place.xaxis if which == "x" else place.yaxis
        ticks.set_major_locator(LogLocator(10, (1, 2, 5)))
        ticks.set_major_formatter(StrMethodFormatter("{x:g}"))
        ticks.set_minor_formatter(NullFormatter())
        place.margins(x=0.15)
    if axis.share:
        place.set_ylim(0, 1.02)
    elif axis.zero:
        place.set_ylim(bottom=0)


def _names(axis: Any, names: tuple[str, ...], width: int) -> None:
    axis.set_ticks(range(len(names)), ["\n".join(textwrap.wrap(name, width)) or name for name in names])
    axis.grid(False)


def _at(panel: Panel, series: Series) -> list[float]:
    return [panel.x.categories.index(x) if isinstance(x, str) else x for x in series.x]


def _values(values: Values) -> list[float]:
    return [math.nan if value is None else value for value in values]


def _bars(place: Axes, panel: Panel, series: Series, shift: float, width: float) -> None:
    at, values = [x + shift for x in _at(panel, series)], _values(series.y)
    colour = _colour(series)
    drawn = (place.barh if panel.sideways else place.bar)(at, values, width, color=colour)
    for bar, marked in zip(drawn, series.marked, strict=False):
        if marked:
            bar.set(facecolor="white", edgecolor=colour, hatch="///")
    if series.low:
        low, high = _values(series.low), _values(series.high)
        ends = [[v - a for v, a in zip(values, low, strict=True)], [b - v for v, b in zip(values, high, strict=True)]]
        where: dict[str, Any] = {"x": at, "y": values, "yerr": ends}
        if panel.sideways:
            where = {"x": values, "y": at, "xerr": ends}
        place.errorbar(**where, fmt="none", ecolor=palette.INK, elinewidth=1, capsize=2)


def _points(place: Axes, panel: Panel, series: Series) -> None:
    x, y = _at(panel, series), _values(series.y)
    x, y = (y, x) if panel.sideways else (x, y)
    if series.colour is None and not series.faint:
        place.scatter(x, y, marker="D", s=32, facecolors="none", edgecolors=palette.INK, linewidths=1.4, zorder=3)
    else:
        size = 60 if len(x) <= 40 else 5 if series.faint else 14
        place.scatter(
            x, y, marker=_turn(series, MARKERS, palette.SYMBOLS), s=size, color=_colour(series), zorder=3, linewidths=0
        )


def _line(place: Axes, panel: Panel, series: Series) -> None:
    x, y = _at(panel, series), _values(series.y)
    if series.low:
        place.fill_between(x, _values(series.low), _values(series.high), color=_colour(series), alpha=0.16, linewidth=0)
    few = series.kind == "line" and len(x) <= 25
    place.plot(
        x, y, color=_colour(series), linewidth=1.8, linestyle=_turn(series, LINES, palette.DASHES), markersize=4,
        marker=_turn(series, MARKERS, palette.SYMBOLS) if few else "", drawstyle="steps-pre" if series.kind == "step" else "default",
    )  # fmt: skip


def _key(series: Series) -> Any:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    colour = _colour(series)
    if series.kind == "bar":
        return Patch(color=colour)
    if series.kind == "point":
        hollow = series.colour is None and not series.faint
        marker = "D" if hollow else _turn(series, MARKERS, palette.SYMBOLS)
        return Line2D([], [], linestyle="", marker=marker, color=colour, markerfacecolor="none" if hollow else colour)
    dash = "--" if series.kind == "level" else _turn(series, LINES, palette.DASHES)
    return Line2D([], [], color=colour, linestyle=dash)


def _turn(series: Series, table: dict[str, str], order: tuple[str, ...]) -> str:
    return table[order[(series.colour or 0) // len(palette.LIGHT) % len(order)]]


def _colour(series: Series) -> str:
    if series.faint:
        return palette.FAINT
    return palette.INK if series.colour is None else palette.LIGHT[series.colour % len(palette.LIGHT)]
