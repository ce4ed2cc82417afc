"""A cell of a grid: one run, named by a hash of what its numbers are a function of."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from fedrec.errors import FedrecError
from fedrec.federation.privacy import Privacy
from fedrec.federation.recommender import Recommender
from fedrec.federation.result import Result
from fedrec.methods import create
from fedrec.methods.own_file import checksum_of, is_own_file
from fedrec.running.claim import config_hash
from fedrec.running.saved import is_finished, read_result
from fedrec.settings import Settings


class Cell(Settings):
    """What is run; plain values, so that another process can do it."""

    method: str
    """Name of a method, or file and class."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings that win over the tuned ones."""
    merge: str | None = None
    """How clients merge the table they download."""
    privacy: Privacy | None = None
    """Local differential privacy on uploads."""
    data: str
    """Name of a data set, or a file."""
    protocol: str
    """Name of a protocol."""
    seed: int
    """Of the split and of the run."""
    rounds: int | None = None
    """None: as many as the method has."""
    evaluate_every: int | None = None
    """Rounds between evaluations; None: those of the method."""
    keep_model: bool = False
    """Whether the model stays in the folder."""

    def make(self) -> Recommender:
        """The method with its settings."""
        return create(self.method, self.settings, protocol=self.protocol, data=self.data, merge=self.merge)


@dataclass(frozen=True)
class Planned:
    """A cell, where its run lies, and what identifies it; ``wrong`` says why it cannot even begin."""

    cell: Cell
    label: str
    """Of the row that wants it."""
    folder: Path | None = None
    rounds: int = 0
    config_hash: str = ""
    split_hash: str = ""
    work: float = 0.0
    """Rounds times training rows: how long it takes beside others."""
    wrong: str | None = None

    @property
    def title(self) -> str:
        """In words, for progress."""
        return f"{self.label} on {self.cell.data} ({self.cell.protocol}), seed {self.cell.seed}"

    @property
    def finished(self) -> bool:
        """Whether its run has ended."""
        return self.folder is not None and is_finished(self.folder)

    def result(self) -> Result | str:
        """Its result, or why there is none."""
        if self.folder is None:
            return self.wrong or "not planned"
        try:
            return read_result(self.folder)
        except FedrecError as error:
            return str(error)


@dataclass(frozen=True)
class SplitFacts:
    """What a plan needs to know of a split."""

    hash: str
    rows: int
    """Training items of all clients."""
    order: str
    """Hash of their order, on which some methods depend."""


def planned(cell: Cell, label: str, split: SplitFacts, cells: Path) -> Planned:
    """The cell with its folder under ``cells``."""
    method = cell.make()
    rounds = method.rounds if cell.rounds is None else cell.rounds
    if method.rounds == 1:  # nothing comes of more
        rounds = min(1, rounds)
        cell = cell.model_copy(update={"rounds": rounds})
    config = config_hash(method, cell.privacy)
    if cell.evaluate_every is None:
        cell = cell.model_copy(update={"evaluate_every": method.evaluate_every})
    facts = [config, split.hash, rounds, cell.seed, cell.evaluate_every] + [split.order] * method.config.uses_order
    facts += [checksum_of(cell.method)] if is_own_file(cell.method) else []
    name = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:20]
    with_model = cells / f"{name}-model"
    kept = cell.keep_model or is_finished(with_model)  # a run with its model serves those who need none, too
    return Planned(
        cell, label, with_model if kept else cells / name, rounds, config, split.hash, rounds * split.rows + 1.0
    )
