"""From the two sums of ``fedrec.parts.order`` to item-item weights with a zero diagonal, in the memory of the sums.

P = (A + lambda I)^-1, B0 = P R, and with the diagonal forced to zero by Lagrange multipliers (Steck, WWW 2019)

    B = B0 - P diag(diag(B0) / diag(P))
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from fedrec.errors import ConfigError
from fedrec.parts.inverse import NotPositiveError, exact_enough, invert_
from fedrec.parts.order import ONE
from fedrec.parts.symmetric import ROWS, mirror_


def in_place(sums: Tensor, dtype: torch.dtype) -> Tensor:
    """Whole numbers [m, m] in units of 2^-16 as floating ones, in their own memory."""
    size = len(sums)
    found = sums.view(dtype)[:, :size]  # narrower numbers leave room at the end of every row
    for first in range(0, size, ROWS):
        rows = slice(first, first + ROWS)
        found[rows] = sums[rows].to(dtype).div_(ONE)
    return found


def symmetric(upper: Tensor, dtype: torch.dtype) -> Tensor:
    """A from its upper triangle in units of 2^-16, in its memory."""
    return mirror_(in_place(upper, dtype))


def precision(upper: Tensor, lam: float) -> torch.dtype:
    """float32 where the condition number allows it."""
    trace = upper.diagonal().double().div(ONE)
    # No eigenvalue is larger than the largest absolute row sum; rows of an upper triangle are halves of it.
    rows = torch.zeros(len(upper), dtype=torch.float64, device=upper.device)
    for first in range(0, len(upper), ROWS):
        part = upper[first : first + ROWS].abs()
        rows += part.sum(0).double()
        rows[first : first + ROWS] += part.sum(1).double()
    largest = float((rows / ONE - trace).max()) if len(upper) else 0.0
    return exact_enough(largest, lam)


def weight_rows(past: Tensor, after: Tensor, lam: float) -> Iterator[Tensor]:
    """B in blocks of rows, from A (upper triangle) and R in units of 2^-16, or both floating and whole; overwrites them."""
    yield from solution_rows(*inverted(past, after, lam))


def inverted(past: Tensor, after: Tensor, lam: float) -> tuple[Tensor, Tensor]:
    """P and R, in the memory of the sums."""
    if past.is_floating_point():
        square, right = past, after
    else:
        dtype = precision(past, lam)
        square, right = symmetric(past, dtype), in_place(after, dtype)
    square.diagonal().add_(lam)
    try:
        inverse = invert_(square)
    except NotPositiveError:
        raise ConfigError(f"the item-item sums with lam={lam:g} cannot be inverted; raise lam.") from None
    return inverse, right


def solution_rows(inverse: Tensor, right: Tensor) -> Iterator[Tensor]:
    """B in blocks of rows from P and R."""
    blocks = [slice(first, first + ROWS) for first in range(0, len(inverse), ROWS)]
    diagonal = torch.cat([(inverse[rows] * right[:, rows].T).sum(1) for rows in blocks])
    pulled = diagonal / inverse.diagonal()
    for rows in blocks:
        found = inverse[rows] @ right
        found.addcmul_(inverse[rows], pulled, value=-1)
        found.diagonal(rows.start).zero_()
        yield found
