"""The inverse of a symmetric positive definite matrix in its own memory, block by block, so that progress can be told."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

BLOCK = 512

Told = Callable[[int, int], None]
"""Told how much of how much is done."""


class NotPositiveError(Exception):
    """The matrix is not positive definite."""


def invert_(square: Tensor, told: Told | None = None, block: int = BLOCK) -> Tensor:
    """Replace ``square`` by its inverse: a sweep over blocks (Gauss and Jordan), nearly all of it one large product each.

    Beside the matrix it needs a strip of ``block`` rows. Numerically sound for positive definite matrices, whose
    sweeps keep every remaining diagonal block positive definite.
    """
    size = len(square)
    for first in range(0, size, block):
        last = min(size, first + block)
        factor, failed = torch.linalg.cholesky_ex(square[first:last, first:last])
        if bool(failed):
            raise NotPositiveError
        pivot = torch.cholesky_inverse(factor)
        strip = square[first:last].clone()
        strip[:, first:last] = 0
        scaled = pivot @ strip
        square.addmm_(strip.T, scaled, alpha=-1)
        square[first:last] = scaled
        square[:, first:last] = scaled.T
        square[first:last, first:last] = -pivot
        if told is not None:
            told(last, size)
    return square.neg_()
