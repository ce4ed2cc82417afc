"""Everything a run continues from: the trainer's state, what happened so far, and the best round."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from fedrec.errors import FedrecError
from fedrec.federation.trainer import Trainer
from fedrec.protocol.split import Split
from fedrec.running.checkpoint import Checkpoint
from fedrec.running.history import History
from fedrec.running.per_client import pack, unpack
from fedrec.running.selection import Best, Selection


@dataclass(frozen=True, eq=False)
class RunState:
    """A run between two rounds; its parts change as it goes on."""

    trainer: Trainer
    split: Split
    history: History
    selection: Selection

    @classmethod
    def fresh(cls, trainer: Trainer, split: Split, device: torch.device) -> RunState:
        """Before the first round."""
        return cls(trainer, split, History(), Selection(trainer, split, device))

    def checkpoint(self) -> Checkpoint:
        """The state after the finished rounds."""
        tensors, best = {"state": self.trainer.state()}, None
        if self.selection.best is not None:
            found = self.selection.best
            tensors["best_results"] = pack(found.results)
            best = {"round": found.round, "value": found.value}
            if found.state is not None:
                tensors["best_state"] = found.state
        return Checkpoint(tensors, {"history": vars(self.history), "best": best, "split_hash": self.split.hash})

    def restore(self, saved: Checkpoint, folder: Path) -> None:
        """Continue from a checkpoint of ``folder``."""
        record = saved.record
        if record["split_hash"] != self.split.hash:
            raise FedrecError(
                f"{folder} holds a run on another split, so it cannot be resumed; choose another run folder."
            )
        try:
            self.trainer.load_state(saved.tensors["state"])
        except (KeyError, RuntimeError):  # tensors of other names or shapes
            raise FedrecError(
                f"the checkpoint in {folder} does not fit this version of the method; choose another run folder."
            ) from None
        vars(self.history).update(record["history"])
        if record["best"] is not None:
            results = unpack(saved.tensors["best_results"])
            self.selection.best = Best(**record["best"], results=results, state=saved.tensors.get("best_state"))
