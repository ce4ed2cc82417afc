"""Item-item counts X'X and the closed form of EASE, shared by the centralised and the federated method.

Steck, "Embarrassingly shallow autoencoders for sparse data", WWW 2019: with G = X'X and P = (G + lambda I)^{-1} the best
linear item-item model with a zero diagonal is B = I - P diagMat(1 / diag(P)).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from fedrec.compute.memory import available
from fedrec.errors import ConfigError
from fedrec.parts.inverse import NotPositiveError, exact_enough, invert_
from fedrec.parts.symmetric import ROWS

SOLVING = 12
"""Bytes of memory for every pair of items: counts, and a matrix to solve in."""
DENSE = 1 << 28
"""Numbers of X that are written out at a time on a GPU."""


def check_square(
    name: str, n_items: int, device: torch.device, limit_gb: float | None, advice: str, *, per_entry: int
) -> None:
    """Refuse item-item matrices of so many bytes per pair that do not fit the stated memory (None: what is free), with the numbers."""
    needed = per_entry * n_items**2
    have = limit_gb * 1e9 if limit_gb is not None else available(device)
    if needed > have:
        raise ConfigError(
            f"{name} needs about {needed / 1e9:.3g} GB for matrices of {n_items} x {n_items} items, but "
            f"{have / 1e9:.3g} GB are {'allowed' if limit_gb is not None else f'free on {device}'}; {advice}."
        )


def gram(owners: Tensor, items: Tensor, n_items: int, values: Tensor | None = None) -> Tensor:
    """X'X [m, m] in float32 from the distinct entries of X: row ``owners``, column ``items``, 1 or ``values``."""
    total, first = torch.zeros(n_items, n_items, device=items.device), 0
    for rows in gram_rows(owners, items, n_items, values):
        total[first : first + len(rows)] = rows
        first += len(rows)
    return total


def gram_rows(owners: Tensor, items: Tensor, n_items: int, values: Tensor | None = None) -> Iterator[Tensor]:
    """The same in blocks of rows."""
    entries = torch.ones(len(items), device=items.device) if values is None else values
    if items.device.type == "cpu":
        yield from _sparse_rows(owners, items, n_items, entries)
    else:
        yield _dense(owners, items, n_items, entries)


def _sparse_rows(owners: Tensor, items: Tensor, n_items: int, entries: Tensor) -> Iterator[Tensor]:
    """Sparse times sparse: work in proportion to the pairs of items users have."""
    shape = (int(owners[-1]) + 1 if len(owners) else 0, n_items)
    x = scipy.sparse.csr_matrix((entries.numpy(), (owners.numpy(), items.numpy())), shape=shape, dtype=np.float32)
    turned = x.T.tocsr()
    for first in range(0, n_items, ROWS):
        yield torch.from_numpy((turned[first : first + ROWS] @ x).toarray(order="C"))


def _dense(owners: Tensor, items: Tensor, n_items: int, entries: Tensor) -> Tensor:
    """All of it by products of some users' rows written out, which is what a GPU is good at."""
    total = torch.zeros(n_items, n_items, device=items.device)
    rows, block = int(owners[-1]) + 1 if len(owners) else 0, max(1, DENSE // n_items)
    for first in range(0, rows, block):
        inside = (owners >= first) & (owners < first + block)
        x = torch.zeros(min(block, rows - first), n_items, device=items.device)
        x[owners[inside] - first, items[inside]] = entries[inside]
        total.addmm_(x.T, x)
    return total


def row_scale(counts: Tensor) -> Tensor:
    """1 / sqrt(n_u): scales a user's row to length 1, so that heavy users do not dominate the counts."""
    return counts.clamp(min=1).float().rsqrt()


def ease_dtype(counts: Tensor, lam: float) -> torch.dtype:
    """float32 where the condition number allows it."""
    return exact_enough(float(counts.abs().sum(0).max()) if len(counts) else 0.0, lam)


def ease_rows(counts: Tensor, lam: float) -> Iterator[Tensor]:
    """B [m, m] with a zero diagonal in blocks of rows, B_ij = -P_ij / P_jj; overwrites the counts, in whose precision it solves."""
    counts.diagonal().add_(lam)
    try:
        inverse = invert_(counts)
    except NotPositiveError:
        raise ConfigError(f"the item-item counts with lam={lam:g} cannot be inverted; raise lam.") from None
    pivots = -inverse.diagonal().clone()
    for first in range(0, len(inverse), ROWS):
        found = inverse[first : first + ROWS] / pivots
        found.diagonal(first).zero_()
        yield found
