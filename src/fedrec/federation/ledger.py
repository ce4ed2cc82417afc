"""What every client did and cost so far, counted by the engine for reports; no method's server sees it."""

from __future__ import annotations

import torch
from torch import Tensor

FIELDS = ("visits", "uploads", "consecutive", "last", "sent", "received")


class Ledger:
    """One number per client and field, [n] int64."""

    def __init__(self, n_clients: int) -> None:
        """Nobody took part yet."""
        self.visits, self.uploads, self.consecutive, self.sent, self.received = (
            torch.zeros(n_clients, dtype=torch.int64) for _ in range(5)
        )
        """Rounds a client took part in, those it sent something in, those right after one it took part in; bytes."""
        self.last = torch.full((n_clients,), -2, dtype=torch.int64)
        """The last round a client took part in."""

    def note(self, clients: Tensor, round: int, *, sent: Tensor, received: Tensor, uploaded: bool) -> None:
        """Count one cohort's visit; bytes are per client, [c] int64."""
        who = clients.cpu()
        self.visits[who] += 1
        self.uploads[who] += int(uploaded)
        self.consecutive[who] += (self.last[who] == round - 1).long()
        self.last[who] = round
        self.sent[who] += sent
        self.received[who] += received

    def state(self) -> dict[str, Tensor]:
        """All counts by name."""
        return {name: getattr(self, name) for name in FIELDS}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Continue from saved counts."""
        for name in FIELDS:
            getattr(self, name).copy_(state[name])
