"""The same sums seen from few directions, in three rounds, for catalogues whose item-item matrices are too much to send.

First every client adds R_u S, where S [m, r] is +1 or -1 at random and common to all: the sum spans directions in which items lead to
items (Halko, Martinsson, Tropp, SIAM Review 2011). With an orthonormal basis Q of it in the place of S another pass finds better ones.
Then every client adds Q'A_u Q and Q'R_u Q, and the weights are Q (Q'AQ + lambda I)^-1 Q'RQ Q'. After two passes a client has sent
2 m r + r (r + 1) / 2 + r^2 numbers. The diagonal of the weights is left as it is: it matters to items that a client has already.

Both sums are of whole units of 2^-16, as those of ``fedrec.parts.order``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from fedrec.federation.payload import State
from fedrec.federation.task import Task
from fedrec.parts.order import ONE, Decay
from fedrec.sampling import streams

NUMBERS = 1 << 22
"""Numbers of all directions at all positions that are worked on at a time."""


def signs(task: Task, rank: int) -> Tensor:
    """+1 or -1 for every item and direction, [m, rank], common to all and a function of the seed."""
    key = streams.child(task.common_key(streams.Purpose.OTHER), 1).to(task.device)
    index = torch.arange(task.n_items * rank, device=task.device)
    return (streams.bits(key, index) & 1).double().mul_(2).sub_(1).view(task.n_items, rank)


def add_sketch(total: Tensor, items: Tensor, decay: Decay, directions: Tensor) -> None:
    """Add R_u S of these histories [c, W], padded with -1, to the int64 [m, r] sum."""
    for part, lengths, seen in _blocks(items, directions):
        added, scale = _after(seen, decay), _scale(lengths, decay)
        real = part >= 0
        total.index_add_(0, part[real].long(), torch.round(added * scale * ONE).long()[real])


def add_projected(past: Tensor, after: Tensor, items: Tensor, decay: Decay, basis: Tensor) -> None:
    """Add Q'A_u Q and Q'R_u Q of these histories to int64 [r, r] sums."""
    for part, lengths, seen in _blocks(items, basis):
        whole = seen.sum(1, keepdim=True) * math.sqrt(decay.alike if decay.ordered else 1.0)
        alike = whole.mT @ whole
        behind = ahead = alike
        if decay.ordered:
            last = torch.arange(part.shape[1], device=part.device) < lengths[:, None] - 1  # none comes after that
            before = _scan(seen, decay.past) * last[:, :, None]
            behind, ahead = before.mT @ before + alike, before.mT @ _future(seen, decay) + alike
        scale = _scale(lengths, decay) * ONE
        past += torch.round(behind * scale).long().sum(0)
        after += torch.round(ahead * scale).long().sum(0)


def basis_of(sketch: Tensor) -> Tensor:
    """Orthonormal directions [m, r] behind R S."""
    found: Tensor = torch.linalg.qr(sketch.double() / ONE).Q
    return found.float().contiguous()


def core_of(past: Tensor, after: Tensor, lam: float) -> Tensor:
    """(Q'AQ + lambda I)^-1 Q'RQ, float32 [r, r]."""
    square = past.double() / ONE
    square = (square + square.T) / 2  # rounding is symmetric, products are not to the last bit
    square.diagonal().add_(lam)
    found: Tensor = torch.linalg.solve(square, after.double() / ONE)
    return found.float()


def projected_scores(model: State, history: Tensor, counts: Tensor) -> Tensor:
    """Scores [c, m] of histories [c, W] whose items count so much."""
    basis = model["basis"]
    seen = (basis[history.clamp(min=0).long()] * counts[:, :, None]).sum(1)
    return seen @ model["core"] @ basis.T


def projected_parts(model: State, history: Tensor, counts: Tensor, items: Tensor) -> Tensor:
    """What every item of these histories adds to the scores of ``items`` [c, k], as [c, W, k]."""
    basis = model["basis"]
    seen = basis[history.clamp(min=0).long()] * counts[:, :, None]
    return seen @ model["core"] @ basis[items].mT


def _blocks(items: Tensor, rows: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Histories, their lengths, and the rows of their items, zero behind them; so many at a time that they fit."""
    lengths = (items >= 0).sum(1)
    longest = max(1, int(lengths.max())) if len(items) else 1
    for block in torch.split(
        torch.arange(len(items), device=items.device), max(1, NUMBERS // (longest * rows.shape[1]))
    ):
        part = items[block, : max(1, int(lengths[block].max()))]  # histories are padded to the longest of all clients
        yield part, lengths[block], rows[part.clamp(min=0).long()] * (part >= 0)[:, :, None]


def _scale(lengths: Tensor, decay: Decay) -> Tensor:
    return torch.from_numpy(decay.scale(lengths.cpu().numpy())).to(lengths.device)[:, None, None]


def _scan(values: Tensor, over: float | None) -> Tensor:
    """sum_{j <= t} exp(-(t - j) / over) values_j at every position t of [c, W, r]."""
    keep = 1.0 if over is None else math.exp(-1 / over)
    found = values.clone()
    for t in range(1, values.shape[1]):
        found[:, t] += keep * found[:, t - 1]
    return found


def _future(values: Tensor, decay: Decay) -> Tensor:
    """sum_{j > t} exp(-(j - t - 1) / future) values_j at every position t."""
    later = _scan(values.flip(1), decay.future).flip(1)
    return torch.cat([later[:, 1:], torch.zeros_like(later[:, :1])], 1)


def _after(seen: Tensor, decay: Decay) -> Tensor:
    """R_u S at every position: what comes after it, as far as it is in the past then."""
    whole = seen.sum(1, keepdim=True).expand_as(seen)
    if not decay.ordered:
        return whole
    return _scan(_future(seen, decay).flip(1), decay.past).flip(1) + decay.alike * whole
