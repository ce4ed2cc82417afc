"""Who is told while a run goes on. A listener of your own is a few lines:

class Chart(fedrec.Listener):
    def round(self, line):
        if "validation" in line:
            plot(line["round"], line["validation"]["full"]["ndcg@10"])

fedrec.train("fedmf", split, listeners=[Chart()])
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fedrec.errors import ConfigError
from fedrec.running import checkpoint
from fedrec.running.files import append_line, write_text
from fedrec.running.history import RoundLine


@dataclass(frozen=True)
class RunStart:
    """What is known when training starts."""

    title: str
    """Method, data and protocol in words."""
    rounds: int
    earlier: tuple[RoundLine, ...] = ()
    """The rounds a resumed run has behind it."""
    resumed: bool = False
    """Whether the run goes on in its folder; without a whole checkpoint there it begins anew."""
    keeps_best: bool = True
    """Whether the model of the selected round is kept; otherwise that of the last round is saved."""


class Listener:
    """Told what happens in a run; override what you want to know. An error ends the run."""

    def start(self, run: RunStart) -> None:
        """Training is about to start, or to go on."""

    def working(self, what: str, done: int, total: int) -> None:
        """Told between rounds and now and then within one: ``what`` is being done, and how much of how much is."""

    def round(self, line: RoundLine) -> None:
        """A round is finished."""

    def checkpoint(self, done: int) -> None:
        """A checkpoint of ``done`` rounds is due; the built-in listeners, so its writer too, are told first."""

    def end(self) -> None:
        """Training has ended: after the last round, by interruption or by an error."""


class MetricsLog(Listener):
    """Writes ``metrics.jsonl``: one JSON object per round."""

    def __init__(self, folder: Path) -> None:
        """The file lies in the run folder."""
        self.path = folder / "metrics.jsonl"

    def start(self, run: RunStart) -> None:
        """Begin anew with the rounds that are known: a killed run may have logged more than its checkpoint knows."""
        write_text(self.path, "".join(json.dumps(line, allow_nan=False) + "\n" for line in run.earlier))

    def round(self, line: RoundLine) -> None:
        """Append a line."""
        append_line(self.path, json.dumps(line, allow_nan=False))


class TensorBoardLog(Listener):
    """Writes every number of a round for TensorBoard."""

    def __init__(self, folder: Path) -> None:
        """Logs lie in the folder ``tensorboard`` of the run folder."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ConfigError("TensorBoard is not installed; pip install 'fedrec[tensorboard]'.") from None
        self._writer: Any = SummaryWriter(str(folder / "tensorboard"))

    def round(self, line: RoundLine) -> None:
        """Log a round."""
        for name, value in _scalars(line):
            self._writer.add_scalar(name, value, line["round"])
        self._writer.flush()

    def end(self) -> None:
        """Close the files."""
        self._writer.close()


class Saved(Protocol):
    """What can be put into a checkpoint."""

    def checkpoint(self) -> checkpoint.Checkpoint:
        """Its state now."""
        ...


class CheckpointWriter(Listener):
    """Writes checkpoints into the run folder."""

    def __init__(self, state: Saved, folder: Path | None) -> None:
        """``state`` is what a checkpoint holds; a process without the ``folder`` adds its share to what the first one writes."""
        self.state, self.folder = state, folder

    def checkpoint(self, done: int) -> None:
        """Write one."""
        found = self.state.checkpoint()
        if self.folder is not None:
            checkpoint.save(self.folder / "checkpoints", done, found)


def _scalars(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """All numbers of a line by their path."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _scalars(value, f"{prefix}{key}/")
        elif isinstance(value, int | float) and key != "round":
            yield prefix + key, float(value)
