"""Dimensional decorrelation: a penalty on the correlations between the columns of an item table.

The form follows Shi, Liang, Zhang, Xue, Bai, "Towards understanding and mitigating dimensional collapse in
heterogeneous federated learning" (FedDecorr), ICLR 2023, normalised to at most 1: with the columns
standardised to Z and K = Z'Z / rows, the penalty is ||K||_F^2 / columns^2. It lies between 1 / columns (uncorrelated)
and 1 (one direction). FedDecorr's code does not divide Z'Z by the rows, so its factors do not carry over.
"""

from __future__ import annotations

import torch
from torch import Tensor

EPS = 1e-8


def correlation(table: Tensor) -> Tensor:
    """K [..., N, N] of ``table`` [..., m, N]."""
    z, _ = _standardised(table)
    return z.mT @ z / table.shape[-2]


def penalty(table: Tensor) -> Tensor:
    """||K||_F^2 / N^2 of each table, differentiable."""
    return correlation(table).square().sum((-2, -1)) / table.shape[-1] ** 2


def penalty_gradient(table: Tensor) -> Tensor:
    """The gradient of ``penalty``, in closed form."""
    rows, columns = table.shape[-2:]
    z, scale = _standardised(table)
    g = z @ (z.mT @ z) * (4 / (columns * rows) ** 2)  # the penalty's gradient by Z is 4 Z K / (N^2 rows)
    return (g - g.mean(-2, keepdim=True) - z * (g * z).mean(-2, keepdim=True)) / scale


def _standardised(table: Tensor) -> tuple[Tensor, Tensor]:
    centred = table - table.mean(-2, keepdim=True)
    scale = torch.sqrt(centred.square().mean(-2, keepdim=True) + EPS)
    return centred / scale, scale


def spectrum(table: Tensor) -> dict[str, object]:
    """Collapse in numbers: variance, singular values of the centred table, and its effective rank.

    The effective rank is exp of the entropy of the singular values' shares; it is 1 for one direction.
    """
    values = torch.linalg.svdvals((table - table.mean(0)).double().cpu())
    share = values / values.sum().clamp(min=1e-300)
    entropy = -torch.special.xlogy(share, share).sum()
    return {
        "variance": float(table.double().var(0, correction=0).sum()),
        "effective_rank": float(entropy.exp()),
        "singular_values": [float(f"{v:.5g}") for v in values.tolist()],
    }
