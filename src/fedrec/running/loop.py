"""The rounds of a run: train, evaluate when it is due, tell the listeners, stop when asked to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Protocol

from fedrec.compute.telling import telling
from fedrec.errors import FedrecError
from fedrec.federation.trainer import RoundReport
from fedrec.running.history import History, Means, RoundLine
from fedrec.running.interruption import interruptible
from fedrec.running.listeners import Listener, RunStart
from fedrec.running.options import RunOptions


class Rounds(Protocol):
    """What trains in rounds."""

    def round(self, number: int) -> RoundReport:
        """Run one round; ``number`` counts from 0."""
        ...


class Judge(Protocol):
    """What evaluates rounds, and remembers the best one."""

    tell: Callable[[int, int], None]
    """Told how many clients of how many have been evaluated."""

    @property
    def keeps_state(self) -> bool:
        """Whether the best round's model is kept."""
        ...

    def evaluate(self, done: int) -> dict[str, Means]:
        """Evaluate the state after ``done`` rounds; what comes back may be shown."""
        ...


class Going(Protocol):
    """A run between two rounds."""

    @property
    def history(self) -> History:
        """Its past."""
        ...

    @property
    def trainer(self) -> Rounds:
        """What trains."""
        ...

    @property
    def selection(self) -> Judge:
        """What evaluates."""
        ...


class StoppedError(FedrecError):
    """A run the user interrupted; it can be resumed."""


class Loop:
    """Runs a trainer to the end."""

    def __init__(
        self,
        state: Going,
        options: RunOptions,
        rounds: int,
        title: str,
        listeners: Sequence[Listener],
        agreed: Callable[[bool], bool] = bool,
    ) -> None:
        """Without a run folder (``options.out``) there are no checkpoints; processes that run together end together (``agreed``)."""
        self.state, self.options, self.rounds, self.title = state, options, rounds, title
        self.listeners, self.agreed = listeners, agreed

    def run(self) -> None:
        """Train until the last round, or until the user interrupts."""
        history, options = self.state.history, self.options
        self.state.selection.tell = partial(self._tell, "evaluating clients")
        with interruptible() as stop, self._listening():
            if self.rounds == 0:
                self.state.selection.evaluate(0)
            while history.rounds < self.rounds:
                line = self._round()
                for listener in self.listeners:
                    listener.round(line)
                last, ends = history.rounds == self.rounds, self.agreed(bool(stop))
                due = options.keep_checkpoints if last else ends or self._every(options.checkpoint_every)
                if options.out and due:
                    for listener in self.listeners:
                        listener.checkpoint(history.rounds)
                if ends and not last:
                    how = (
                        f"resume it in {options.out}" if options.out else "give a run folder (out) to be able to resume"
                    )
                    raise StoppedError(f"interrupted after round {history.rounds} of {self.rounds}; {how}.")

    def _round(self) -> RoundLine:
        history = self.state.history
        done = history.rounds + 1
        self._tell(f"training, round {done}", history.rounds, self.rounds)
        with telling(self._tell):
            report = self.state.trainer.round(history.rounds)
        shown: dict[str, Means] = {}
        if done % self.options.evaluate_every == 0 or done == self.rounds:
            start = time.perf_counter()
            shown = self.state.selection.evaluate(done)
            report.seconds["evaluation"] = time.perf_counter() - start
        return history.add(report, shown)

    def _tell(self, what: str, done: int, total: int) -> None:
        for listener in self.listeners:
            listener.working(what, done, total)

    def _every(self, rounds: int) -> bool:
        return rounds > 0 and self.state.history.rounds % rounds == 0

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Tell listeners of the start, and those that were told also of the end, whatever happens."""
        earlier, keeps_best = tuple(self.state.history.lines), self.state.selection.keeps_state
        start = RunStart(self.title, self.rounds, earlier, self.options.resume, keeps_best)
        with ExitStack() as ends:  # each is told of the end, even if another one fails at it
            for listener in self.listeners:
                ends.callback(listener.end)
                listener.start(start)
            yield
