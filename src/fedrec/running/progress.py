"""What a user sees while a run goes on: a live bar on a terminal, plain lines elsewhere. Always on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fedrec.protocol.choices import Choices
from fedrec.running.history import RoundLine
from fedrec.running.listeners import Listener, RunStart

LINES = 20
"""Plain lines a run prints at most, so that a log stays readable."""


class ProgressDisplay(Listener):
    """Shows round, loss, the metric that selects, clients per second and time left."""

    def __init__(
        self,
        protocol: Choices,
        note: Callable[[], str] | None = None,
        console: Console | None = None,
        remarks: tuple[str, ...] = (),
    ) -> None:
        """``note`` may add words to every line; ``remarks`` are said at the start."""
        self.protocol, self.note, self.console = protocol, note, console or Console(stderr=True)
        self.remarks = remarks
        self._bar: Progress | None = None

    def start(self, run: RunStart) -> None:
        """Show the bar."""
        self._run, self._first, self._start = run, len(run.earlier), time.perf_counter()
        if self.console.is_terminal:
            columns = (
                TextColumn("[bold]{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}"),
            )
            self._bar = Progress(*columns, TimeRemainingColumn(), console=self.console)
            self._task = self._bar.add_task(run.title, total=run.rounds, completed=self._first, note="")
            self._bar.start()
        for remark in self.remarks:
            self._say(f"Note: {remark}.")
        if run.resumed:
            self._say(
                f"resumed after round {self._first}" if self._first else "no whole checkpoint: beginning with round 1"
            )
        if not run.keeps_best:
            self._say("State is too large to keep a copy of the best round: the model of the last round will be saved.")

    def round(self, line: RoundLine) -> None:
        """Show that a round is finished."""
        done, rounds = line["round"], self._run.rounds
        if self._bar:
            self._bar.update(self._task, completed=done, note=self._words(line))
        elif done == rounds or done == self._first + 1 or done % max(1, rounds // LINES) == 0:
            taken = time.perf_counter() - self._start
            left = taken / max(1, done - self._first) * (rounds - done)
            self._say(f"{self._run.title}: round {done}/{rounds}, {self._words(line)}, {left:.0f} s left")

    def end(self) -> None:
        """Leave the bar as it stands."""
        if self._bar:
            self._bar.stop()

    def _words(self, line: RoundLine) -> str:
        chosen = self.protocol
        words = [] if line["loss"] is None else [f"loss {line['loss']:.4f}"]
        means = line.get(chosen.select_on)
        if means is not None:
            words.append(
                f"{chosen.select_on} {chosen.select_metric} {means[chosen.select_ranking][chosen.select_metric]:.4f}"
            )
        if line["clients_per_second"]:
            words.append(f"{line['clients_per_second']:.0f} clients/s")
        if self.note is not None:
            words.append(self.note())
        return ", ".join(words)

    def _say(self, text: str) -> None:
        (self._bar.console if self._bar else self.console).print(text, highlight=False, soft_wrap=True)
