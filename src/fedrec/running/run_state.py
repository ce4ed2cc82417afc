"""A run between two rounds: everything that goes on with it, as one object that checkpoints hold and restore."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict, ValidationError

from fedrec.errors import FedrecError
from fedrec.federation.shares import Shares
from fedrec.federation.state_check import StateMismatchError, check_state
from fedrec.federation.trainer import Trainer
from fedrec.protocol.split import Split
from fedrec.running.checkpoint import Checkpoint
from fedrec.running.claim import Claim, check_same
from fedrec.running.history import History
from fedrec.running.per_client import pack, unpack
from fedrec.running.selection import Best, Selection, drawn


class _BestRecord(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    round: int
    value: float


class _Record(BaseModel):
    """What of a checkpoint is no tensor."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    claim: Claim
    history: History
    best: _BestRecord | None


@dataclass(frozen=True, eq=False)
class RunState:
    """A run between two rounds; its parts change as it goes on."""

    claim: Claim
    trainer: Trainer
    split: Split
    history: History
    selection: Selection
    shares: Shares
    start: float
    """When this process began with the run."""

    @classmethod
    def fresh(
        cls,
        claim: Claim,
        trainer: Trainer,
        split: Split,
        device: torch.device,
        shares: Shares | None = None,
        start: float | None = None,
    ) -> RunState:
        """Before the first round; ``shares`` say which clients live in this process, by default all, ``start`` when it began."""
        shares = shares or Shares(torch.from_numpy(split.training.positives.counts))
        sample = None if claim.evaluate_users is None else drawn(split.data.n_users, claim.evaluate_users, claim.seed)
        selection = Selection(trainer, split, device, shares, sample)
        began = time.perf_counter() if start is None else start
        return cls(claim, trainer, split, History(), selection, shares, began)

    def checkpoint(self) -> Checkpoint:
        """The state after the finished rounds; that of all clients in the first process."""
        tensors, best = {"state": self.shares.whole(self.trainer.state())}, None
        if self.selection.best is not None:
            found = self.selection.best
            tensors["best_results"] = pack(found.results)
            best = _BestRecord(round=found.round, value=found.value)
            if found.state is not None:
                tensors["best_state"] = self.shares.whole(found.state)
        record = _Record(claim=self.claim, history=self.history.until_now(self.start), best=best)
        return Checkpoint(tensors, record.model_dump(mode="json"))

    def restore(self, saved: Checkpoint, folder: Path) -> None:
        """Continue from a checkpoint of ``folder``."""
        try:
            record = _Record.model_validate(saved.record)
            if record.model_dump(mode="json") != saved.record:
                raise ValueError("fields with defaults are missing, or values have been read as other ones")
            if record.history.rounds != len(record.history.lines):
                raise ValueError("rounds are missing")
            check_same(record.claim, self.claim, folder)
            own = self.trainer.state()
            known = {
                name: self.shares.part(saved.tensors[name]) for name in ("state", "best_state") if name in saved.tensors
            }
            check_state(own, known["state"])
            if record.best is not None:
                results = unpack(saved.tensors["best_results"])
                if "best_state" in known:
                    check_state(own, known["best_state"])
                self.selection.best = Best(record.best.round, record.best.value, results, known.get("best_state"))
        except StateMismatchError as error:
            raise FedrecError(
                f"the checkpoint in {folder} does not fit the method ({error}); choose another run folder."
            ) from None
        except (ValidationError, KeyError, ValueError):
            raise FedrecError(
                f"the checkpoint in {folder} lacks what belongs there; choose another run folder."
            ) from None
        self.trainer.load_state(known["state"])
        vars(self.history).update(vars(record.history))
        self.history.go_on()
