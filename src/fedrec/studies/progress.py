"""What a user sees while a grid runs: what is done of all cells, and how long the rest may take. Always on stderr."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from fedrec.screen import screen
from fedrec.studies.cell import Planned
from fedrec.studies.worker import BUSY, FAILED, FINISHED, STOPPED

LINE_SECONDS = 60.0
"""Seconds between lines that say no more than how far the grid is, where there is no terminal."""


class GridProgress:
    """Bars on a terminal, one for the grid and one per running cell; lines elsewhere."""

    def __init__(self, cells: Sequence[Planned], known: int, console: Console | None = None) -> None:
        """``known`` cells are finished already."""
        self.cells, self.known, self.console = cells, known, console or screen(stderr=True)
        self._rounds = [0.0] * len(cells)
        self._begun = [0.0] * len(cells)
        self._ended = 0
        self._start = self._line = time.monotonic()
        self._bar: Progress | None = None
        self._tasks: dict[int, TaskID] = {}
        self.said: set[int] = set()

    def __enter__(self) -> GridProgress:
        if self.console.is_terminal and self.cells:
            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.fields[note]}", markup=False),
            )
            self._bar = Progress(*columns, console=self.console, transient=True)
            self._all = self._bar.add_task("all cells", total=1.0, note="")
            self._bar.start()
        words = f"{self.known} finished before, {len(self.cells)} to run"
        self._say(f"{self.known + len(self.cells)} cells: {words if self.cells else 'all finished before'}")
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar:
            self._bar.stop()

    def hear(self, number: int, said: dict[str, Any]) -> None:
        """Something is heard of a cell."""
        cell, state = self.cells[number], said.get("state")
        if "rounds" in said:
            self._begun[number] = said["round"]
        if "round" in said:
            self._rounds[number] = said["round"]
        if state == "running" and self._bar:
            self._tasks[number] = self._bar.add_task(cell.title, total=max(1, cell.rounds), note="")
        elif state in (FINISHED, FAILED, STOPPED, BUSY):
            self._end(number, state, said.get("why"))
        self._show(number)

    def _end(self, number: int, state: str, why: str | None) -> None:
        cell = self.cells[number]
        if self._bar and number in self._tasks:
            self._bar.remove_task(self._tasks.pop(number))
        if state == BUSY:
            if number not in self.said:
                self.said.add(number)
                self._say(f"{cell.title}: {why} It is waited for.")
            return
        self._ended += state != STOPPED
        self._rounds[number] = cell.rounds
        how = "finished" if state == FINISHED else f"{state}: {why}"
        self._say(f"{self.known + self._ended}/{self.known + len(self.cells)} {cell.title}: {how}{self._left()}")

    def _show(self, number: int) -> None:
        if self._bar:
            if number in self._tasks:
                done = self._rounds[number]
                self._bar.update(
                    self._tasks[number], completed=done, note=f"{done:.0f}/{self.cells[number].rounds} rounds"
                )
            ended = f"{self.known + self._ended}/{self.known + len(self.cells)} cells{self._left()}"
            self._bar.update(self._all, completed=self.share, note=ended)
        elif time.monotonic() - self._line > LINE_SECONDS:
            self._say(f"{100 * self.share:.0f} % of the work{self._left()}")

    @property
    def share(self) -> float:
        """Of the work that was to be done: rounds, weighted with the rows they train on."""
        total = done = 0.0
        for cell, before, now in zip(self.cells, self._begun, self._rounds, strict=True):
            each = cell.work / max(1, cell.rounds)
            total += cell.work - each * before
            done += each * max(0.0, now - before) if cell.rounds else 0.0
        return min(1.0, done / total) if total > 0 else 1.0

    def _left(self) -> str:
        share, taken = self.share, time.monotonic() - self._start
        if share < 0.01 or share >= 1.0:
            return ""
        return f", about {_duration(taken * (1 - share) / share)} left"

    def _say(self, text: str) -> None:
        self._line = time.monotonic()
        console = self._bar.console if self._bar else self.console
        console.print(text, soft_wrap=True)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
