"""The inverse of a symmetric positive definite matrix in its own memory, block by block, so that progress can be told."""

from __future__ import annotations

import torch
from torch import Tensor

from fedrec.compute.telling import tell
from fedrec.parts.symmetric import ROWS, mirror_

BLOCK = 512
SINGLE = 1e4
"""Condition number up to which float32 is good to 1e-5; beyond it the solver takes float64, which is slower."""


class NotPositiveError(Exception):
    """The matrix is not positive definite."""


def exact_enough(largest: float, lam: float) -> torch.dtype:
    """What to solve in where no eigenvalue is above ``largest`` and ``lam`` is added to all."""
    return torch.float32 if largest + lam < SINGLE * lam else torch.float64


def invert_(square: Tensor, block: int = BLOCK) -> Tensor:
    """Replace ``square`` by its inverse: a sweep over blocks (Gauss and Jordan), nearly all of it one large product each.

    Beside the matrix, of which only the lower triangle counts, it needs two strips of ``block`` rows. Numerically sound for positive definite matrices, whose
    sweeps keep every remaining diagonal block positive definite.
    """
    size = len(square)
    for first in range(0, size, block):
        last = min(size, first + block)
        factor, failed = torch.linalg.cholesky_ex(square[first:last, first:last])
        if bool(failed):
            raise NotPositiveError
        pivot = torch.cholesky_inverse(factor)
        strip = torch.cat([square[first:last, :last], square[last:, first:last].T], 1)
        strip[:, first:last] = 0
        scaled = pivot @ strip
        for top in range(0, size, ROWS):  # what is above the diagonal is not kept up to date: half the work
            end = min(size, top + ROWS)
            square[top:end, :end].addmm_(strip[:, top:end].T, scaled[:, :end], alpha=-1)
        square[first:last, :last] = scaled[:, :last]
        square[last:, first:last] = scaled[:, last:].T
        square[first:last, first:last] = -pivot
        tell("solving for item weights", last, size)
    mirror_(square.T)
    return square.neg_()
