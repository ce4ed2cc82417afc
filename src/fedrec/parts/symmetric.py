"""Symmetric matrices: sent as a triangle, mended after noise, and summed up by their largest eigenpairs."""

from __future__ import annotations

import torch
from torch import Tensor


def pack(square: Tensor) -> Tensor:
    """Upper triangle with diagonal, m (m + 1) / 2 numbers: all of a symmetric matrix."""
    return square[_upper(len(square), square.device)]


def unpack(packed: Tensor, n: int) -> Tensor:
    """The symmetric matrix behind ``pack``."""
    square = packed.new_zeros(n, n)
    square[_upper(n, packed.device)] = packed
    return square + square.triu(1).T


def _upper(n: int, device: torch.device) -> Tensor:
    return torch.ones(n, n, dtype=torch.bool, device=device).triu_()


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
