"""What comes after what: sums over histories of two item-item matrices, exact in whole numbers, and the weights behind them.

The linear session models of Choi, Kim, Lee, Shim, Lee, "Session-aware linear item-item models for session-based
recommendation" (WWW 2021), as sums over clients. A client with the items s_1 .. s_L, oldest first, adds

    A = sum_t p_t p_t' + a x x'        p_t = sum_{j<=t} exp(-(t-j) / past) e_{s_j}
    R = sum_t p_t f_t' + a x x'        f_t = sum_{j>t} exp(-(j-t-1) / future) e_{s_j}         t = 1 .. L-1

Items of a history are distinct, so every entry belongs to one pair of positions and is a function of these and L alone:
``Decay`` tabulates it. Entries are rounded to multiples of 2^-16 and added as whole numbers. So a sum is the same
whatever the order of clients, cohorts, threads or sites, on every device, and a secure aggregation can carry it as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrec.compute import dispatch
from fedrec.compute.cpu import for_clients
from fedrec.parts.cpu_order import add_pairs

BITS = 16
ONE = 1 << BITS
PAIRS = 1 << 22
"""Pairs of positions worked on at a time by the reference."""


class Tables(NamedTuple):
    """For histories of up to some length: an entry of A is round(near[gap] * left[items behind both]) + alike.

    In units of 2^-16 but for ``near``. One product, rounded at once, is the same number on every device.
    """

    near: NDArray[np.float64]
    left: NDArray[np.float64]
    after: NDArray[np.int64]
    """Entries of R by gap, where the second item comes later."""
    alike: int


@dataclass(frozen=True)
class Decay:
    """How the distance between two items of a history counts; None: not at all, whatever is near counts as what is far."""

    past: float | None
    future: float | None
    alike: float
    """The weight a of having both items, whatever their order."""
    ordered: bool = True
    """Without order only x x' is left, with weight 1."""
    clip: float | None = None
    """Largest L2 norm of what one client adds, A's upper triangle and R together."""

    def tables(self, longest: int) -> Tables:
        """The functions of distance, as far as the longest history needs them."""
        n = np.arange(longest + 1, dtype=np.float64)
        if not self.ordered:
            return Tables(np.zeros_like(n), np.zeros_like(n), np.zeros(longest + 1, np.int64), ONE)
        near, ahead = _decayed(n, self.past), _decayed(n, self.future)
        left = np.append(0.0, np.cumsum(near**2)[:-1])
        # sum_k near[k] ahead[n-1-k], each from the one before.
        after = np.zeros_like(n)
        last = ahead[1] if longest else 1.0
        for gap in range(1, longest + 1):
            after[gap] = after[gap - 1] * last + near[gap - 1]
        return Tables(near, left * ONE, np.rint(after * ONE).astype(np.int64), round(self.alike * ONE))

    def scale(self, lengths: NDArray[np.int64]) -> NDArray[np.float64]:
        """What every client multiplies its part with, so that its norm is at most ``clip``."""
        if self.clip is None:
            return np.ones(len(lengths))
        norm = self.norms(int(lengths.max(initial=0)))[lengths]
        scale: NDArray[np.float64] = np.minimum(1.0, self.clip / np.maximum(norm, 1e-12))
        return scale

    def norms(self, longest: int) -> NDArray[np.float64]:
        """L2 norm of (upper triangle of A, R) of a history of every length 0..longest: positions decide, not items."""
        near, left, after, alike = self.tables(longest)
        squares = np.zeros(longest + 1)
        for length in range(1, longest + 1):
            gap, behind = np.arange(length)[:, None], np.arange(length)[None, :]
            # Pairs of positions at a distance, by how many items are behind the later one.
            entry = (np.rint(near[:length, None] * left[None, :length]) + alike) * (behind < length - gap)
            squares[length] = (entry**2).sum() + ((length - gap[:, 0]) * (after[:length] + alike) ** 2.0).sum()
            squares[length] += (length * (length - 1) / 2) * float(alike) ** 2  # R where the second item comes first
        return np.sqrt(squares) / ONE


def _decayed(distance: NDArray[np.float64], over: float | None) -> NDArray[np.float64]:
    return np.ones_like(distance) if over is None else np.exp(-distance / over)


def add_histories(past: Tensor, after: Tensor, items: Tensor, lengths: Tensor, decay: Decay) -> None:
    """Add A (upper triangle) and R of the histories ``items`` [c, W], padded behind ``lengths`` [c], to int64 [m, m] sums."""
    counts = lengths.cpu().numpy()
    tables, scale = decay.tables(int(counts.max(initial=0))), decay.scale(counts)
    kind = dispatch.compiled_on(past.device)
    if kind == "gpu":
        from fedrec.parts.gpu_order import add_all

        there = tuple(torch.from_numpy(x).to(past.device) for x in (*tables[:3], scale))
        return add_all(past, after, items, lengths, there, tables.alike)
    if kind == "cpu":
        arrays = (items.numpy(), counts, *tables, scale, past.numpy(), after.numpy())
        rows = np.full(len(past), float((counts**2).sum()) / max(1, len(past)))
        return for_clients(lambda first, last: add_pairs(first, last, *arrays), rows, unit=3)
    at_once = max(1, PAIRS // max(1, items.shape[1] ** 2))
    for block in torch.split(torch.arange(len(items), device=items.device), at_once):
        _add_block(past, after, items[block], lengths[block], tables, torch.from_numpy(scale).to(items.device)[block])


def _add_block(past: Tensor, after: Tensor, items: Tensor, lengths: Tensor, tables: Tables, scale: Tensor) -> None:
    """The definition, for clients whose squares of positions fit; a very long history row by row."""
    near, left, then = (torch.from_numpy(table).to(items.device) for table in tables[:3])
    width, size = int(lengths.max()) if len(lengths) else 0, len(past)
    items = items[:, :width]
    j, wide = torch.arange(width, device=items.device), items.long()
    for rows in torch.split(j, max(1, PAIRS // max(1, len(items) * width))) if width else ():
        i = rows[:, None]
        gap, later = (i - j).abs(), torch.maximum(i, j)
        behind = lengths[:, None, None] - 1 - later
        valid = (behind >= 0).nonzero(as_tuple=True)
        clients, down, across = valid
        place = wide[clients, rows[down]] * size + wide[clients, across]
        upper = wide[clients, rows[down]] <= wide[clients, across]
        entry = torch.round(near[gap][down, across] * left[behind[valid]]) + tables.alike
        past.view(-1).index_add_(0, place[upper], torch.round(entry * scale[clients]).long()[upper])
        entry = torch.where(j > i, then[gap], 0)[down, across] + tables.alike
        after.view(-1).index_add_(0, place, torch.round(entry * scale[clients]).long())
