"""What a user sees while a run goes on: a live bar on a terminal, plain lines elsewhere. Always on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from fedrec.protocol.choices import Choices
from fedrec.running.history import RoundLine
from fedrec.running.listeners import Listener, RunStart
from fedrec.screen import plain, screen

LINES = 20
"""Plain lines a run prints at most, so that a log stays readable."""
PATIENCE = 10.0
"""Seconds after which a log without a bar says what is being done."""
BAR = 20
"""Columns of the bar."""


class _Bar(Progress):
    """A bar, and under it a line of words, so that the words cannot push the bar and the counter off the screen."""

    words = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        """Two lines."""
        yield self.make_tasks_table(self.tasks)
        yield Text(self.words, no_wrap=True, overflow="ellipsis")


class ProgressDisplay(Listener):
    """Shows round, what is being done, loss, the metric that selects, clients per second and time left."""

    def __init__(
        self,
        protocol: Choices,
        note: Callable[[], str] | None = None,
        console: Console | None = None,
        remarks: tuple[str, ...] = (),
    ) -> None:
        """``note`` may add words to every line; ``remarks`` are said at the start."""
        self.protocol, self.note, self.console = protocol, note, console or screen(stderr=True)
        self.remarks = remarks
        self._bar: _Bar | None = None
        self._last = ""

    def start(self, run: RunStart) -> None:
        """Show the bar."""
        self._run, self._first, self._start = run, len(run.earlier), time.perf_counter()
        self._title, self._said = plain(run.title), self._start
        if self.console.is_terminal:
            room = max(8, self.console.width - BAR - 26)  # beside spinner, bar, counter and time
            self._bar = _Bar(
                SpinnerColumn(),
                TextColumn(
                    "{task.description}",
                    style="bold",
                    markup=False,
                    table_column=Column(no_wrap=True, overflow="ellipsis", max_width=room),
                ),
                BarColumn(BAR),
                MofNCompleteColumn(table_column=Column(no_wrap=True)),
                TimeRemainingColumn(table_column=Column(no_wrap=True)),
                console=self.console,
            )
            self._task = self._bar.add_task(self._title, total=run.rounds, completed=self._first)
            self._bar.start()
        for remark in self.remarks:
            self._say(f"Note: {remark}.")
        if run.resumed:
            self._say(
                f"resumed after round {self._first}" if self._first else "no whole checkpoint: beginning with round 1"
            )
        if not self._bar and run.rounds - self._first == 1:  # the only line until it is over
            self._say(f"{self._title}: training")
        if not run.keeps_best:
            self._say("State is too large to keep a copy of the best round: the model of the last round will be saved.")

    def working(self, what: str, done: int, total: int) -> None:
        """Show what goes on: at once on a terminal, elsewhere when it has taken long."""
        words = what if what.startswith("training") else f"{what}, {done:,} of {total:,}"
        if self._bar:
            self._bar.words = f"{self._last}; {words}" if self._last else words
        elif time.perf_counter() - self._said > PATIENCE and done < total:
            self._say(f"{self._title}: {words}")

    def round(self, line: RoundLine) -> None:
        """Show that a round is finished."""
        done, rounds = line["round"], self._run.rounds
        if self._bar:
            self._last = self._bar.words = self._words(line)
            self._bar.update(self._task, completed=done)
        elif done == rounds or done == self._first + 1 or done % max(1, rounds // LINES) == 0:
            taken = time.perf_counter() - self._start
            left = taken / max(1, done - self._first) * (rounds - done)
            self._say(
                ", ".join(
                    filter(None, [f"{self._title}: round {done}/{rounds}", self._words(line), f"{left:.0f} s left"])
                )
            )

    def end(self) -> None:
        """Leave the bar as it stands."""
        if self._bar:
            self._bar.words = self._last
            self._bar.stop()

    def _words(self, line: RoundLine) -> str:
        chosen = self.protocol
        words = [] if line["loss"] is None else [f"loss {line['loss']:.4f}"]
        means = line.get(chosen.select_on)
        if means is not None and chosen.holdout != "nothing":
            value = means[chosen.select_ranking][chosen.select_metric]
            words.append(f"{chosen.select_on} {chosen.select_metric} {value:.4f}")
        if line["clients_per_second"]:
            words.append(f"{line['clients_per_second']:.0f} clients/s")
        if self.note is not None:
            words.append(self.note())
        return ", ".join(words)

    def _say(self, text: str) -> None:
        self._said = time.perf_counter()
        (self._bar.console if self._bar else self.console).print(text, highlight=False, markup=False, soft_wrap=True)
