"""How long a client trains in a round, and in what pieces."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """Epochs of local training."""

    epochs: int
    batch_size: int
    early_stop_tol: float = 0.0
    """A client stops when its mean loss changes by less than this, relatively; 0 is never."""
