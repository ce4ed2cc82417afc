"""FedEM's two large products, approximated: distances of tables from sketches, personal means from weights of low rank.

Both cost n^2 m d operations for n clients; with a sketch of k numbers and weights of rank r they are n^2 k and n r m d, and a pass over
the tables. Off its diagonal the weight of u for v depends on how far u and v are from the mean table and little else, since
what two clients do beyond that is nearly orthogonal: few ranks hold it. The diagonal, each client's weight for itself, is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedrec.parts.tables import mix

PASSES = 4
"""Times that the weights are read in search of their ranks."""
MOST_MISSED = 0.1
"""Weights off the diagonal that miss more than this, relatively, are not used."""
ROWS = 256
"""Clients whose tables are read at a time."""


def sketched(tables: Sequence[Tensor], size: int, seed: int) -> list[Tensor]:
    """Sketches [c, size] of the tables, less their mean: squared distances stay, up to a factor of about 1 +- sqrt(2 / size).

    Every number of a table has a random sign and is added to one of ``size`` places; a table of no more numbers stays as it is.
    """
    width = tables[0][0].numel()
    generator = torch.Generator().manual_seed(seed)
    signs = (torch.randint(0, 2, (width,), generator=generator) * 2 - 1).to(tables[0])
    shifts = torch.randint(0, size, (-(-width // size),), generator=generator).tolist()
    found = []
    for block in tables:
        out = block.new_zeros(len(block), size)
        for into, rows in zip(torch.split(out, ROWS), torch.split(block.flatten(1), ROWS), strict=True):
            for start, shift in zip(range(0, width, size), shifts, strict=True):
                _add_turned(into, rows[:, start : start + size], signs[start : start + size], shift)
        found.append(out)
    mean = sum(block.sum(0) for block in found) / sum(map(len, found))
    return [block - mean for block in found]


def _add_turned(out: Tensor, values: Tensor, signs: Tensor, shift: int) -> None:
    """Add signed columns to those ``shift`` further on; the last ones come first."""
    before = min(out.shape[1] - shift, values.shape[1])
    out[:, shift : shift + before].addcmul_(values[:, :before], signs[:before])
    out[:, : values.shape[1] - before].addcmul_(values[:, before:], signs[before:])


def low_rank(weights: Tensor, rank: int, seed: int) -> tuple[Tensor, Tensor, float]:
    """What of ``weights`` [n, n] is off the diagonal as left [n, rank] right [rank, n], and how much that misses, relatively.

    The diagonal is free: the search puts there what it finds itself.
    """
    rest = weights.clone()
    rest.diagonal().zero_()
    whole = rest.norm()
    generator = torch.Generator().manual_seed(seed)
    left = torch.randn(len(weights), rank, generator=generator).to(weights)
    for _ in range(PASSES):
        left = torch.linalg.qr(rest @ left).Q
        right = left.T @ rest
        rest.diagonal().copy_((left * right.T).sum(1))
        left = torch.linalg.qr(rest @ right.T).Q
        right = left.T @ rest
    missed = rest.addmm_(left, right, alpha=-1).fill_diagonal_(0).norm() / whole.clamp(min=1e-30)
    return left, right, float(missed)


def mix_low_rank(weights: Tensor, tables: Sequence[Tensor], rank: int, seed: int) -> Tensor:
    """Personal tables [n, m, d] as ``mix``, with weights of low rank off the diagonal; exactly where those miss too much.

    Every row still sums to what it did: what is left of it is the client's weight for itself.
    """
    left, right, missed = low_rank(weights, min(rank, len(weights)), seed)
    if missed > MOST_MISSED:
        return mix(weights, tables)
    own = weights.sum(1) - left @ right.sum(1)
    common = mix(right, tables).flatten(1)
    out = tables[0].new_empty(len(weights), *tables[0].shape[1:])
    start = 0
    for block in tables:
        for rows in torch.split(block.flatten(1), ROWS):
            here = slice(start, start + len(rows))
            into = out.flatten(1)[here]
            torch.mul(rows, own[here, None], out=into)
            into.addmm_(left[here], common)
            start += len(rows)
    return out
