"""The life of a run: rounds, evaluation, selection, checkpoints, progress and the result."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedrec.compute.memory import available
from fedrec.errors import ConfigError, FedrecError
from fedrec.evaluation.evaluator import Evaluation, Evaluator
from fedrec.federation import checkpoint
from fedrec.federation.progress import ProgressDisplay
from fedrec.federation.trainer import RoundReport, Trainer
from fedrec.protocol.split import Split


@dataclass
class Best:
    """The selected round so far: its results and, where memory allows, its state."""

    round: int
    value: float
    results: dict[str, Evaluation]
    state: dict[str, Tensor] | None


@dataclass
class History:
    """What happened so far; grows with every round and is part of a checkpoint."""

    rounds: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    trained_clients: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    lines: list[dict[str, Any]] = field(default_factory=list)

    def add(self, report: RoundReport, line: dict[str, Any]) -> None:
        """Account for one finished round."""
        self.rounds += 1
        self.trained_clients += report.clients
        self.bytes_up += report.bytes_up
        self.bytes_down += report.bytes_down
        for name, value in report.seconds.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + value
        self.lines.append(line)


class Loop:
    """Runs a trainer to the end, evaluating, selecting and checkpointing on the way."""

    def __init__(
        self,
        trainer: Trainer,
        split: Split,
        *,
        title: str,
        device: torch.device,
        rounds: int,
        evaluate_every: int = 1,
        checkpoint_every: int = 0,
        folder: Path | None = None,
        progress: bool = True,
        note: Any = None,
        tensorboard: bool = False,
    ) -> None:
        """``note(rounds)`` may add words to every progress line; ``folder`` is where logs and checkpoints go."""
        if rounds < 0 or evaluate_every < 1 or checkpoint_every < 0:
            raise ConfigError(
                "rounds and checkpoint-every must not be negative, and evaluate-every must be at least 1."
            )
        self.trainer, self.split, self.title, self.rounds = trainer, split, title, rounds
        self.evaluate_every, self.checkpoint_every, self.folder = evaluate_every, checkpoint_every, folder
        self.progress, self.note = progress, note
        self.board = _board(folder) if tensorboard else None
        self.evaluator = Evaluator(split, device, logits=trainer.logits)
        self.history = History()
        self.best: Best | None = None
        self.final: dict[str, Evaluation] = {}
        # A copy of the state at the best round lets the run recommend from it; a very large one is not worth it.
        self.keep_state = _nbytes(trainer.state()) < available(device) // 8

    def run(self) -> None:
        """Train until the last round, or until the user interrupts."""
        if self.rounds == 0:
            self.evaluate(0)
        with (
            _interruptible() as stop,
            ProgressDisplay(self.title, self.rounds, done=self.history.rounds, enabled=self.progress) as bar,
        ):
            if not self.keep_state:
                bar.say(
                    "State is too large to keep a copy of the best round: the model of the last round will be saved."
                )
            while self.history.rounds < self.rounds:
                number = self.history.rounds
                report = self.trainer.round(number)
                line = self._line(number + 1, report)
                self.history.add(report, line)
                self._log(line)
                bar.round(number + 1, self._describe(line))
                last = number + 1 == self.rounds
                due = self.checkpoint_every and (number + 1) % self.checkpoint_every == 0
                if self.folder and (due or stop) and not last:
                    self.save()
                if stop and not last:
                    how = (
                        f"resume with --resume --out {self.folder}"
                        if self.folder
                        else "give --out to be able to resume"
                    )
                    raise FedrecError(f"interrupted after round {number + 1} of {self.rounds}; {how}.")

    def _line(self, done: int, report: RoundReport) -> dict[str, Any]:
        line: dict[str, Any] = {"round": done, "loss": report.loss}
        if done % self.evaluate_every == 0 or done == self.rounds:
            start = time.perf_counter()
            line |= self.evaluate(done)
            report.seconds["evaluation"] = time.perf_counter() - start
        total = sum(report.seconds.values())
        return line | {
            "clients_per_second": round(report.clients / total, 1) if total else None,
            "bytes_up": report.bytes_up,
            "bytes_down": report.bytes_down,
            "seconds": {name: round(value, 4) for name, value in report.seconds.items()},
        }

    def measure(self) -> None:
        """Evaluate the current state: both parts, and all views the method reports."""
        self.final = {}
        for view in (None, *self.trainer.views):
            scorer = partial(self.trainer.scores, view=view)
            found = self.evaluator.evaluate(scorer, "validation", "test", order=self.trainer.client_order)
            for part, value in found.items():
                self.final[part if view is None else f"{part}@{view}"] = value

    def evaluate(self, done: int) -> dict[str, Any]:
        """Evaluate both parts; what is shown and what selects is the protocol's business, the rest stays sealed."""
        protocol = self.split.protocol
        self.measure()
        shown = {"validation": self.final["validation"].means()}
        if protocol.select_on == "test":
            shown["test"] = self.final["test"].means()
        value = shown[protocol.select_on][protocol.select_ranking][protocol.select_metric]
        if np.isnan(value):
            raise FedrecError(
                f"{self.split.data.name} has no {protocol.select_on} items under '{protocol.name}', so no round can be chosen; "
                "raise validation_ratio or use data with more rows per user."
            )
        better = self.best is None or value > self.best.value or (value == self.best.value and protocol.select_later)
        if better:
            state = None
            if self.keep_state:
                state = {name: tensor.clone() for name, tensor in self.trainer.state().items()}
            self.best = Best(done, value, self.final, state)
        return shown

    def _describe(self, line: dict[str, Any]) -> str:
        protocol = self.split.protocol
        words = [f"loss {line['loss']:.4f}"] if np.isfinite(line["loss"]) else []
        if protocol.select_on in line:
            value = line[protocol.select_on][protocol.select_ranking][protocol.select_metric]
            words.append(f"{protocol.select_on} {protocol.select_metric} {value:.4f}")
        if line["clients_per_second"]:
            words.append(f"{line['clients_per_second']:.0f} clients/s")
        if self.note is not None:
            words.append(self.note(line["round"]))
        return ", ".join(words)

    def _log(self, line: dict[str, Any]) -> None:
        if self.board is not None:
            for name, value in _scalars(line):
                self.board.add_scalar(name, value, line["round"])
            self.board.flush()
        if self.folder:
            with (self.folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    def save(self) -> None:
        """Write a checkpoint of the finished rounds."""
        assert self.folder is not None
        tensors = {"state": self.trainer.state()}
        best = None
        if self.best is not None:
            tensors["best_results"] = pack(self.best.results)
            best = {"round": self.best.round, "value": self.best.value}
            if self.best.state is not None:
                tensors["best_state"] = self.best.state
        record = {"history": vars(self.history), "best": best, "split_hash": self.split.hash}
        checkpoint.save(self.folder / "checkpoints", self.history.rounds, tensors, record)

    def resume(self) -> int:
        """Continue from the newest whole checkpoint; returns the number of finished rounds (0 if there is none)."""
        found = checkpoint.load_newest(self.folder / "checkpoints") if self.folder else None
        if self.folder is None or found is None:
            self._rewrite_log()
            return 0
        record = found.record
        if record["split_hash"] != self.split.hash:
            raise FedrecError(
                f"{self.folder} holds a run on another split, so it cannot be resumed; use another --out."
            )
        self.trainer.load_state(found.tensors["state"])
        self.history = History(**record["history"])
        if record["best"] is not None:
            results = unpack(found.tensors["best_results"])
            self.best = Best(**record["best"], results=results, state=found.tensors.get("best_state"))
        self._rewrite_log()
        return self.history.rounds

    def _rewrite_log(self) -> None:
        """Drop logged rounds that the checkpoint does not know."""
        if self.folder:
            text = "".join(json.dumps(line) + "\n" for line in self.history.lines)
            (self.folder / "metrics.jsonl").write_text(text, encoding="utf-8")


def _nbytes(state: dict[str, Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in state.values())


def _board(folder: Path | None) -> Any:
    """A TensorBoard writer in the run folder."""
    if folder is None:
        raise ConfigError("TensorBoard logs need a run folder; give --out.")
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ConfigError("TensorBoard is not installed; pip install 'fedrec[tensorboard]'.") from None
    return SummaryWriter(str(folder / "tensorboard"))


def _scalars(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """All numbers of a log line by their path."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _scalars(value, f"{prefix}{key}/")
        elif isinstance(value, int | float) and key != "round":
            yield prefix + key, float(value)


def pack(results: dict[str, Evaluation]) -> dict[str, Tensor]:
    """Per-client values as named tensors."""
    named: dict[str, Tensor] = {}
    for part, evaluation in results.items():
        for kind, values in (("sampled", evaluation.sampled), ("full", evaluation.full)):
            named |= {f"{part}/{kind}/{name}": torch.from_numpy(value) for name, value in values.items()}
    return named


def unpack(tensors: dict[str, Tensor]) -> dict[str, Evaluation]:
    """The inverse of ``pack``."""
    results: dict[str, Evaluation] = {}
    for key, value in tensors.items():
        part, kind, name = key.split("/")
        evaluation = results.setdefault(part, Evaluation())
        (evaluation.sampled if kind == "sampled" else evaluation.full)[name] = value.numpy()
    return results


@contextmanager
def _interruptible() -> Iterator[list[bool]]:
    """Turn the first Ctrl-C into a wish to stop after the current round; the second one ends at once."""
    stop: list[bool] = []

    def ask(number: int, frame: FrameType | None) -> None:
        if stop:
            raise KeyboardInterrupt
        stop.append(True)

    try:
        before = signal.signal(signal.SIGINT, ask)
    except ValueError:  # not the main thread: leave signals alone
        yield stop
        return
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
