"""What happened in a run so far, round by round."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace

from typing_extensions import NotRequired, TypedDict  # noqa: UP035 (pydantic reads no other on Python 3.11)

from fedrec.federation.trainer import RoundReport

Means = dict[str, dict[str, float]]
"""Means over clients by ranking (sampled, full) and metric."""
MeansLine = dict[str, dict[str, float | None]]
"""The same for JSON, which knows no NaN: None where no client has a value."""


TOTAL = "total"
"""Beside the phases in the seconds of a history that goes on: those of the processes before."""


class RoundLine(TypedDict):
    """One finished round, as ``metrics.jsonl`` holds it."""

    round: int
    """Counts from 1."""
    loss: float | None
    """Mean over the clients that trained; None where a method has none (a closed form reports 0)."""
    validation: NotRequired[MeansLine]
    """Only in rounds that are evaluated."""
    test: NotRequired[MeansLine]
    """Only where the protocol selects on test; otherwise the test values stay sealed."""
    clients_per_second: float | None
    bytes_up: int
    bytes_down: int
    seconds: dict[str, float]
    """By phase."""


@dataclass
class History:
    """Grows with every round and is part of a checkpoint."""

    rounds: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    trained_clients: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    lines: list[RoundLine] = field(default_factory=list)

    @property
    def phases(self) -> dict[str, float]:
        """Seconds by phase."""
        return {name: value for name, value in self.seconds.items() if name != TOTAL}

    def total(self, start: float) -> float:
        """Seconds of all processes; this one began at ``start``, and the time between them does not count."""
        return self.seconds.get(TOTAL, 0.0) + time.perf_counter() - start

    def until_now(self, start: float) -> History:
        """As another process goes on with it."""
        return replace(self, seconds=self.seconds | {TOTAL: self.total(start)})

    def go_on(self) -> None:
        """It comes from another process; one that noted no total took at least as long as its phases."""
        self.seconds.setdefault(TOTAL, sum(self.seconds.values()))

    def add(self, report: RoundReport, shown: dict[str, Means]) -> RoundLine:
        """Account for one finished round and what may be shown of its evaluation; returns the round's line."""
        self.rounds += 1
        self.trained_clients += report.clients
        self.bytes_up += report.bytes_up
        self.bytes_down += report.bytes_down
        for name, value in report.seconds.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + value
        self.lines.append(_line(self.rounds, report, shown))
        return self.lines[-1]


def _line(number: int, report: RoundReport, shown: dict[str, Means]) -> RoundLine:
    total = sum(report.seconds.values())
    line: RoundLine = {
        "round": number,
        "loss": report.loss if math.isfinite(report.loss) and report.loss != 0 else None,
        "clients_per_second": round(report.clients / total, 1) if total else None,
        "bytes_up": report.bytes_up,
        "bytes_down": report.bytes_down,
        "seconds": {name: round(value, 4) for name, value in report.seconds.items()},
    }
    if "validation" in shown:
        line["validation"] = _nullable(shown["validation"])
    if "test" in shown:
        line["test"] = _nullable(shown["test"])
    return line


def _nullable(means: Means) -> MeansLine:
    return {
        kind: {name: None if math.isnan(value) else value for name, value in found.items()}
        for kind, found in means.items()
    }
