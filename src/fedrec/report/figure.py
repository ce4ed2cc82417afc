"""A figure before it is drawn: what stands where, without colours or sizes. The page and the image files draw the same ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

X = float | str
Values = tuple[float | None, ...]
Kind = Literal["line", "step", "bar", "point", "level"]


@dataclass(frozen=True)
class Axis:
    """One axis."""

    title: str
    log: bool = False
    categories: tuple[str, ...] = ()
    """Names instead of numbers, in order."""
    zero: bool = False
    """Whether it starts at 0."""
    share: bool = False
    """Whether it goes from 0 to 1."""
    hidden: bool = False
    """Without ticks and numbers, where they mean nothing."""


@dataclass(frozen=True)
class Series:
    """What has one name and one colour."""

    name: str
    kind: Kind
    x: tuple[X, ...]
    y: Values
    colour: int | None = None
    """Place in the palette; None: the colour of text, for what everything else is compared with."""
    low: Values = ()
    """Lower and upper end of a spread, where there is one."""
    high: Values = ()
    marked: tuple[bool, ...] = ()
    """Values that are not to be compared with the others: their protocol leaks."""
    faint: bool = False


@dataclass(frozen=True)
class Panel:
    """One drawing of a figure."""

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    sideways: bool = False
    """Bars lie, with their names on the left: x is the value's axis then."""

    @property
    def words(self) -> str:
        """What a person hears who cannot see it."""
        parts = [_told(series) for series in self.series[:8]]
        more = [f"and {len(self.series) - 8} more"] if len(self.series) > 8 else []
        return f"{self.y.title} over {self.x.title}. {'; '.join(parts + more)}."


@dataclass(frozen=True)
class Figure:
    """One or several drawings with one title and one legend."""

    key: str
    """Name of its file."""
    title: str
    about: str
    """How it is read."""
    panels: tuple[Panel, ...]

    @property
    def legend(self) -> list[Series]:
        """One series of every name, in order."""
        found: dict[str, Series] = {}
        for panel in self.panels:
            for series in panel.series:
                found.setdefault(series.name, series)
        return list(found.values())


def number(value: float | None) -> float | None:
    """Six digits: as much as anybody sees."""
    return None if value is None or value != value else float(f"{value:.6g}")


def numbers(values: list[float | None]) -> Values:
    """The same for many."""
    return tuple(number(value) for value in values)


def _told(series: Series) -> str:
    if series.kind == "level":
        return f"{series.name}: {series.y[0]:.4g} throughout"
    known = [(x, y) for x, y in zip(series.x, series.y, strict=True) if y is not None]
    if not known:
        return f"{series.name}: no values"
    if len(known) > 12 and series.kind == "point":
        return f"{series.name}: {len(known)} points"
    if len(known) <= 6:
        return f"{series.name}: " + ", ".join(_pair(x, y) for x, y in known)
    best = max(known, key=lambda pair: pair[1])
    return f"{series.name}: from {_pair(*known[0])} to {_pair(*known[-1])}, highest {_pair(*best)}"


def _pair(x: X, y: float) -> str:
    return f"{y:.4g} at {x if isinstance(x, str) else format(x, '.4g')}"
