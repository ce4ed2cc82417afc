"""How a client scores items from its user vector and an item table."""

from __future__ import annotations

from collections.abc import Callable

import torch
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


PAIRS = {"cpu": 1 << 18, "cuda": 1 << 23}
"""Pairs of client and item that a network scores at once: each needs the units of the widest layer."""


def by_chunks(score: Callable[..., Tensor], table: Tensor, *of_clients: Tensor) -> Tensor:
    """``score(*of_clients, table)`` [c, m] of whole tables [c, m, d] without gradients, some clients at a time."""
    step = max(1, PAIRS[table.device.type] // max(1, table.shape[1]))
    chunks = zip(*(torch.split(x, step) for x in (*of_clients, table)), strict=True)
    with torch.no_grad():
        return torch.cat([score(*chunk) for chunk in chunks])
