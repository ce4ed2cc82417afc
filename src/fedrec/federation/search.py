"""Where to look for good settings: declared beside a method's Config (``space``), or derived from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``; ``log``: by orders of magnitude; ``whole``: whole numbers."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def holds(self, value: Any) -> bool:
        """Whether a value lies in it."""
        return isinstance(value, int | float) and self.low <= value <= self.high


@dataclass(frozen=True)
class Options:
    """One of a few values."""

    values: tuple[bool | int | float | str, ...]

    def holds(self, value: Any) -> bool:
        """Whether a value is among them."""
        return value in self.values


Space = Mapping[str, Range | Options]
"""What to search, by the name of a setting."""

WEIGHTS = ("reg", "l2", "weight_decay")
"""Penalties, of which only the order of magnitude is known beforehand."""


def derived(defaults: Mapping[str, Any]) -> dict[str, Range | Options]:
    """A space for settings with these defaults: learning rates and penalties by magnitude, local epochs, initial spread."""
    space: dict[str, Range | Options] = {}
    for name, usual in defaults.items():
        if isinstance(usual, bool) or not isinstance(usual, int | float) or usual <= 0:
            continue
        if "lr" in name.split("_"):
            space[name] = Range(usual / 30, usual * 30, log=True)
        elif name in WEIGHTS:
            space[name] = Range(usual / 100, usual * 100, log=True)
        elif name == "epochs":
            space[name] = Range(1, max(10, int(usual)), whole=True)
        elif name == "init_std":
            space[name] = Range(min(0.01, usual), max(1.0, usual), log=True)
    return space
