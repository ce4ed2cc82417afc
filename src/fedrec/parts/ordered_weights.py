"""From the two sums of ``fedrec.parts.order`` to item-item weights with a zero diagonal.

P = (A + lambda I)^-1, B0 = P R, and with the diagonal forced to zero by Lagrange multipliers (Steck, WWW 2019)

    B = B0 - P diag(diag(B0) / diag(P))
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from fedrec.errors import ConfigError
from fedrec.parts.gram import SINGLE
from fedrec.parts.inverse import NotPositiveError, Told, invert_
from fedrec.parts.order import ONE

ROWS = 1024


def symmetric(upper: Tensor, dtype: torch.dtype) -> Tensor:
    """A from its upper triangle in units of 2^-16, without a second copy."""
    square = upper.to(dtype).div_(ONE)
    for first in range(0, len(square), ROWS):
        rows = slice(first, first + ROWS)
        square[rows, rows] += square[rows, rows].triu(1).T
        square[first + ROWS :, rows] = square[rows, first + ROWS :].T
    return square


def precision(upper: Tensor, lam: float) -> torch.dtype:
    """float32 where the condition number allows it."""
    trace = upper.diagonal().double().div(ONE)
    # No eigenvalue is larger than the largest absolute row sum; rows of an upper triangle are halves of it.
    rows = upper.abs().sum(0).double() + upper.abs().sum(1).double()
    largest = float((rows / ONE - trace).max()) if len(upper) else 0.0
    return torch.float32 if largest + lam < SINGLE * lam else torch.float64


def weight_rows(past: Tensor, after: Tensor, lam: float, told: Told | None = None) -> Iterator[Tensor]:
    """B in blocks of rows, from A (symmetric, floating, overwritten) and R in units of 2^-16 or floating."""
    past.diagonal().add_(lam)
    try:
        inverse = invert_(past, told)
    except NotPositiveError:
        raise ConfigError(f"the item-item sums with lam={lam:g} cannot be inverted; raise lam.") from None
    right = after if after.is_floating_point() else after.to(inverse.dtype).div_(ONE)
    blocks = [slice(first, first + ROWS) for first in range(0, len(inverse), ROWS)]
    diagonal = torch.cat([(inverse[rows] * right[:, rows].T).sum(1) for rows in blocks])
    pulled = diagonal / inverse.diagonal()
    for rows in blocks:
        found = inverse[rows] @ right
        found.addcmul_(inverse[rows], pulled, value=-1)
        found.diagonal(rows.start).zero_()
        yield found.float()
