"""A federation's run between two rounds: what checkpoints hold on the server, and what sites must keep for it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from fedrec.deploy.federation import Federation
from fedrec.deploy.judge import Best, Judge
from fedrec.deploy.members import Member, packed, unpacked
from fedrec.deploy.sums import MetricSums
from fedrec.errors import FedrecError
from fedrec.federation.trainer import RoundReport
from fedrec.running.checkpoint import Checkpoint
from fedrec.running.claim import Claim
from fedrec.running.history import History


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    claim: Claim
    history: History
    members: list[dict[str, Any]]
    best_round: int | None
    best_value: float | None
    names: list[str]


@dataclass(eq=False)
class FederationState:
    """Trainer, judge and history of a run."""

    claim: Claim
    federation: Federation
    selection: Judge
    history: History = field(default_factory=History)
    saved: list[int] = field(default_factory=list)
    """Rounds of the last two checkpoints."""
    start: float = field(default_factory=time.perf_counter)
    """When this process began with the run."""

    @property
    def trainer(self) -> FederationState:
        """What the loop asks for rounds."""
        return self

    def round(self, number: int) -> RoundReport:
        """One round; sites keep the private state that a checkpoint or the best round needs."""
        best = self.selection.best
        rounds = {*self.saved, *([] if best is None else [best.round])}
        blocks = self.federation.method.blocks(self.federation.task)
        self.federation.keep = {done * blocks for done in rounds}
        return self.federation.round(number)

    def checkpoint(self) -> Checkpoint:
        """The state after the finished rounds."""
        self.saved = [*self.saved[-1:], self.history.rounds]
        best = self.selection.best
        about, counts = packed(self.federation.members)
        tensors = {"state": self.federation.state(), "members": {"counts": counts}}
        if best is not None:
            tensors["best_state"] = best.state
            tensors["best_sums"] = {"values": best.sums.values, "users": best.sums.users}
        record = _Record(
            claim=self.claim,
            history=self.history.until_now(self.start),
            members=about,
            best_round=None if best is None else best.round,
            best_value=None if best is None else best.value,
            names=[] if best is None else best.sums.names,
        )
        return Checkpoint(tensors, record.model_dump(mode="json"))

    def restore(self, saved: Checkpoint, folder: Path) -> None:
        """Continue from a checkpoint of ``folder``."""
        record = record_of(saved, folder)
        self.federation.load_state(saved.tensors["state"])
        if record.best_round is not None and record.best_value is not None:
            found = saved.tensors["best_sums"]
            sums = MetricSums(record.names, found["values"], found["users"])
            self.selection.best = Best(record.best_round, record.best_value, sums, saved.tensors["best_state"])
        self.history = record.history
        self.history.go_on()
        self.saved = [self.history.rounds]


def record_of(saved: Checkpoint, folder: Path) -> _Record:
    """What of a checkpoint is no tensor."""
    try:
        return _Record.model_validate(saved.record)
    except (ValidationError, KeyError, ValueError):
        raise FedrecError(f"the checkpoint in {folder} is none of a federation; choose another run folder.") from None


def known_members(saved: Checkpoint, folder: Path) -> list[Member]:
    """The sites of a run that is to go on."""
    return unpacked(record_of(saved, folder).members, saved.tensors["members"]["counts"])
