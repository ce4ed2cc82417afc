"""The rounds of a run: train, evaluate when it is due, tell the listeners, stop when asked to."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fedrec.errors import FedrecError
from fedrec.running.history import RoundLine
from fedrec.running.interruption import interruptible
from fedrec.running.listeners import Listener, RunStart
from fedrec.running.run_state import RunState


class Loop:
    """Runs a trainer to the end."""

    def __init__(
        self,
        state: RunState,
        *,
        title: str,
        rounds: int,
        evaluate_every: int,
        checkpoint_every: int,
        folder: Path | None,
        listeners: Sequence[Listener],
    ) -> None:
        """Without a run ``folder`` there are no checkpoints."""
        self.state, self.title, self.rounds, self.folder = state, title, rounds, folder
        self.evaluate_every, self.checkpoint_every = evaluate_every, checkpoint_every
        self.listeners = listeners

    def run(self) -> None:
        """Train until the last round, or until the user interrupts."""
        history = self.state.history
        if self.rounds == 0:
            self.state.selection.evaluate(0)
        with interruptible() as stop, self._listening():
            while history.rounds < self.rounds:
                line = self._round()
                for listener in self.listeners:
                    listener.round(line)
                if history.rounds == self.rounds:
                    break
                if self.folder and (stop or self._every(self.checkpoint_every)):
                    for listener in self.listeners:
                        listener.checkpoint(history.rounds)
                if stop:
                    how = (
                        f"resume it in {self.folder}" if self.folder else "give a run folder (out) to be able to resume"
                    )
                    raise FedrecError(f"interrupted after round {history.rounds} of {self.rounds}; {how}.")

    def _round(self) -> RoundLine:
        history = self.state.history
        done = history.rounds + 1
        report, shown = self.state.trainer.round(history.rounds), {}
        if done % self.evaluate_every == 0 or done == self.rounds:
            start = time.perf_counter()
            shown = self.state.selection.evaluate(done)
            report.seconds["evaluation"] = time.perf_counter() - start
        return history.add(report, shown)

    def _every(self, rounds: int) -> bool:
        return rounds > 0 and self.state.history.rounds % rounds == 0

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Tell listeners of the start, and those that were told also of the end, whatever happens."""
        earlier, keeps_best = tuple(self.state.history.lines), self.state.selection.keeps_state
        start = RunStart(self.title, self.rounds, earlier, keeps_best)
        with ExitStack() as ends:  # each is told of the end, even if another one fails at it
            for listener in self.listeners:
                ends.callback(listener.end)
                listener.start(start)
            yield
