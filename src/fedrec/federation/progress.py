"""What a user sees while a run goes on: a live bar on a terminal, plain lines elsewhere. Always on stderr."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

LINES = 20
"""Plain lines a run prints at most, so that a log stays readable."""


class ProgressDisplay:
    """Shows round, loss, validation metric, clients per second and time left."""

    def __init__(
        self, title: str, rounds: int, *, done: int = 0, enabled: bool = True, console: Console | None = None
    ) -> None:
        """``done`` rounds are already behind a resumed run."""
        self.console = console or Console(stderr=True)
        self.title, self.rounds, self.enabled = title, rounds, enabled
        self._start, self._first = time.perf_counter(), done
        self._bar: Progress | None = None
        if enabled and self.console.is_terminal:
            columns = (
                TextColumn("[bold]{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}"),
            )
            self._bar = Progress(*columns, TimeRemainingColumn(), console=self.console)
            self._task = self._bar.add_task(title, total=rounds, completed=done, note="")

    def __enter__(self) -> ProgressDisplay:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def round(self, done: int, note: str) -> None:
        """Show that ``done`` rounds are finished."""
        if self._bar:
            self._bar.update(self._task, completed=done, note=note)
        elif self.enabled and (
            done == self.rounds or done == self._first + 1 or done % max(1, self.rounds // LINES) == 0
        ):
            taken = time.perf_counter() - self._start
            left = taken / max(1, done - self._first) * (self.rounds - done)
            self.console.print(
                f"{self.title}: round {done}/{self.rounds}, {note}, {left:.0f} s left",
                highlight=False,
                soft_wrap=True,
            )

    def say(self, text: str) -> None:
        """Print a sentence."""
        if self.enabled:
            (self._bar.console if self._bar else self.console).print(text, highlight=False, soft_wrap=True)
