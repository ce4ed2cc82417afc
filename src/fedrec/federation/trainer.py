"""Anything that trains in rounds and scores clients: a federation, or a centralised model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from fedrec.federation.mixture import Mixture
from fedrec.federation.shares import Shares
from fedrec.federation.stages import Stage


@dataclass(frozen=True, eq=False)
class Setup:
    """What a trainer is told beside the data: where randomness comes from, where it runs, what guards uploads."""

    seed: int = 0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    privacy: Stage | None = None
    store_folder: Path | None = None
    """Keep the clients' state in memory-mapped files there instead of in memory."""
    half: bool = False
    """Keep the clients' item tables in half precision."""
    shares: Shares | None = None
    """Which clients live in this process, where several run one simulation."""


@dataclass
class RoundReport:
    """What one round cost and gave."""

    loss: float = float("nan")
    clients: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    seconds: dict[str, float] = field(default_factory=dict)  # sampling, training, aggregation

    def add(self, other: RoundReport) -> None:
        """Count in what another part of the same round cost; the loss stays as it is."""
        self.clients += other.clients
        self.bytes_up += other.bytes_up
        self.bytes_down += other.bytes_down
        for name, seconds in other.seconds.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds


def is_private(name: str) -> bool:
    """Whether a tensor of a trainer's state is of the clients, such as their vectors, or of what they did."""
    return name.startswith(("clients.", "ledger.", "secret."))


def is_working(name: str) -> bool:
    """Whether only a run that goes on needs it: the server's sums, which nothing scores with."""
    return name.startswith("server.working.")


def is_secret(name: str) -> bool:
    """Whether only a run that goes on may have it: what the clients' noise is made from."""
    return name.startswith("secret.")


@runtime_checkable
class FromHistory(Protocol):
    """A trainer whose method ``folds_in``: it scores anybody whose items it is told, and may say what each of them adds."""

    def scores_from(self, history: Tensor) -> Tensor:
        """Scores [c, m] of anybody who has these items [c, W], oldest first, padded with -1 at the end, and no others."""
        ...

    def contributions(self, history: Tensor, items: Tensor) -> Tensor:
        """What every one of them adds to the scores of ``items`` [c, k], as [c, W, k]; for methods that say they ``explains``."""
        ...


@runtime_checkable
class OfParts(Protocol):
    """A trainer whose scores are sums of what several recommenders say."""

    def added(self, clients: Tensor, items: Tensor) -> dict[str, Tensor]:
        """What every part adds to the scores of ``items`` [k] of these clients, [c, k], by its name."""
        ...


class Trainer(Protocol):
    """What a run needs: rounds, scores, and a state that can be saved."""

    private_bytes: int
    """Memory all private client state takes."""
    logits: bool
    """Whether scores are logits of a probability."""

    @property
    def folds_in(self) -> bool:
        """Whether scores can count items that came later."""
        ...

    @property
    def client_order(self) -> Tensor | None:
        """The order of clients in which scoring is fastest."""
        ...

    @property
    def views(self) -> tuple[str, ...]:
        """Other ways to score that are worth reporting."""
        ...

    @property
    def most_uploads(self) -> int:
        """Uploads of the client that sent most so far."""
        ...

    def round(self, number: int) -> RoundReport:
        """Run one round; ``number`` counts from 0."""
        ...

    def scores(self, clients: Tensor, view: str | None = None, later: Tensor | None = None) -> Tensor:
        """Scores [c, m] of these clients, of whom each got the items ``later`` [c, k] (padded with -1) after training."""
        ...

    def mixtures(self, clients: Tensor) -> Iterator[tuple[Tensor, Mixture]]:
        """What the item tables of these clients are made of, block by block; nothing where clients do not merge."""
        ...

    def diagnostics(self) -> dict[str, Any]:
        """What the method itself has to say at the end."""
        ...

    def client_groups(self) -> dict[str, Tensor]:
        """Named groups of clients (their numbers) whose results are reported apart."""
        ...

    def state(self) -> dict[str, Tensor]:
        """Everything a later round depends on, by name; ``is_private`` says what of it is not the server's."""
        ...

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Continue from a saved state."""
        ...
