"""Item-item counts X'X and the closed form of EASE, shared by the centralised and the federated method.

Steck, "Embarrassingly shallow autoencoders for sparse data", WWW 2019: with G = X'X and P = (G + lambda I)^{-1} the best
linear item-item model with a zero diagonal is B = I - P diagMat(1 / diag(P)).
"""

from __future__ import annotations

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from fedrec.compute.memory import available
from fedrec.errors import ConfigError

MATRICES = 4
"""Square matrices alive while solving: counts, factor, inverse, weights."""
SINGLE = 1e4
"""Condition number up to which float32 is good to 1e-5; beyond it the solver takes float64, which is slower."""


def check_square(name: str, n_items: int, device: torch.device, limit_gb: float | None, advice: str) -> None:
    """Refuse item-item matrices that do not fit the stated memory (None: what is free), with the numbers."""
    needed = MATRICES * 4 * n_items**2
    have = limit_gb * 1e9 if limit_gb is not None else available(device)
    if needed > have:
        raise ConfigError(
            f"{name} needs about {needed / 1e9:.3g} GB for matrices of {n_items} x {n_items} items, but "
            f"{have / 1e9:.3g} GB are {'allowed' if limit_gb is not None else f'free on {device}'}; {advice}."
        )


def gram(owners: Tensor, items: Tensor, n_items: int, values: Tensor | None = None) -> Tensor:
    """X'X [m, m] in float32 from the distinct entries of X: row ``owners``, column ``items``, 1 or ``values``."""
    entries = torch.ones(len(items), device=items.device) if values is None else values
    rows = int(owners[-1]) + 1 if len(owners) else 0
    if items.device.type == "cpu":  # sparse times sparse: work in proportion to the pairs of items users have
        shape = (rows, n_items)
        x = scipy.sparse.csr_matrix((entries.numpy(), (owners.numpy(), items.numpy())), shape=shape, dtype=np.float32)
        return torch.from_numpy((x.T @ x).toarray(order="C"))
    total = torch.zeros(n_items, n_items, device=items.device)
    block = max(1, (1 << 28) // n_items)
    for first in range(0, rows, block):
        inside = (owners >= first) & (owners < first + block)
        x = torch.zeros(min(block, rows - first), n_items, device=items.device)
        x[owners[inside] - first, items[inside]] = entries[inside]
        total.addmm_(x.T, x)
    return total


def row_scale(counts: Tensor) -> Tensor:
    """1 / sqrt(n_u): scales a user's row to length 1, so that heavy users do not dominate the counts."""
    return counts.clamp(min=1).float().rsqrt()


def inverse(counts: Tensor, lam: float, dtype: torch.dtype | None = None) -> Tensor:
    """(G + lambda I)^{-1} by Cholesky; in float32 where the condition number allows it, unless told otherwise."""
    if dtype is None:
        largest = float(counts.abs().sum(0).max()) if len(counts) else 0.0
        dtype = torch.float32 if largest + lam < SINGLE * lam else torch.float64
    regular = counts.to(dtype, copy=True)
    regular.diagonal().add_(lam)
    factor, failed = torch.linalg.cholesky_ex(regular)
    if bool(failed):
        raise ConfigError(f"the item-item counts with lam={lam:g} cannot be inverted; raise lam.")
    return torch.cholesky_inverse(factor)


def ease_weights(counts: Tensor, lam: float, dtype: torch.dtype | None = None) -> Tensor:
    """B [m, m] with a zero diagonal: B_ij = -P_ij / P_jj."""
    p = inverse(counts, lam, dtype)
    weights = p.div_(-p.diagonal().clone())
    weights.diagonal().zero_()
    # The solver's matrix lies column by column, in which summing rows is twenty times as slow.
    return weights.to(dtype or torch.float32).contiguous()
