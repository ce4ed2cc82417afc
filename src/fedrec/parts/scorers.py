"""How a client scores items from its user vector and an item table."""

from __future__ import annotations

from torch import Tensor


def shared(table: Tensor) -> Tensor | None:
    """The one [m, d] table behind a broadcast [c, m, d], or None if clients have their own."""
    return table[0] if table.dim() == 3 and len(table) and table.stride(0) == 0 else None


def broadcast(table: Tensor, clients: int) -> Tensor:
    """A server table as every client's download: [c, m, d] without a copy."""
    return table.expand(clients, *table.shape)


def dot(user: Tensor, table: Tensor) -> Tensor:
    """Scores [c, m]: user vectors [c, d] times item rows [c, m, d]."""
    one = shared(table)
    return user @ one.T if one is not None else (table @ user.unsqueeze(2)).squeeze(2)
