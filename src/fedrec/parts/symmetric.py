"""Symmetric matrices: sent as a triangle, mended after noise, and summed up by their largest eigenpairs."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

ROWS = 1024
"""Rows of a large matrix that are worked on at a time, where all of them would need memory for nothing."""


def pack(blocks: Iterable[Tensor]) -> Tensor:
    """Upper triangle with diagonal, m (m + 1) / 2 numbers: all of a symmetric matrix, which comes in blocks of rows."""
    found, first = list[Tensor](), 0
    for block in blocks:
        found.append(torch.cat([row[first + i :] for i, row in enumerate(block)]))
        first += len(block)
    return torch.cat(found)


def unpack(packed: Tensor, n: int, dtype: torch.dtype | None = None) -> Tensor:
    """The symmetric matrix behind ``pack``."""
    square, first = torch.empty(n, n, dtype=dtype or packed.dtype, device=packed.device), 0
    for i in range(n):
        square[i, i:] = packed[first : first + n - i]
        first += n - i
    return mirror_(square)


def mirror_(square: Tensor) -> Tensor:
    """Make a matrix symmetric in its own memory, of which only the upper triangle counts."""
    for first in range(0, len(square), ROWS):
        rows = slice(first, first + ROWS)
        corner = square[rows, rows].triu()
        square[rows, rows] = corner + corner.triu(1).T
        square[first + ROWS :, rows] = square[rows, first + ROWS :].T
    return square


def positive_part(square: Tensor) -> Tensor:
    """The nearest matrix without negative eigenvalues: counts with noise need not be one."""
    values, vectors = torch.linalg.eigh(square)
    nearest: Tensor = (vectors * values.clamp(min=0)) @ vectors.T
    return nearest


def top_eigenpairs(square: Tensor, k: int, steps: int = 12) -> tuple[Tensor, Tensor]:
    """The ``k`` largest eigenvalues [k] and vectors [m, k] by subspace iteration from a fixed start."""
    n = len(square)
    start = torch.randn(n, min(n, k + 16), generator=torch.Generator().manual_seed(0))
    basis = torch.linalg.qr(start.to(square)).Q
    for _ in range(steps):
        basis = torch.linalg.qr(square @ basis).Q
    values, inner = torch.linalg.eigh(basis.T @ square @ basis)
    return values.flip(0)[:k], (basis @ inner.flip(1))[:, :k]
