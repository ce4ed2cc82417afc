"""Products and means of whole item tables that lie cohort by cohort, for servers that compare clients."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


def inner_products(blocks: Sequence[Tensor]) -> Tensor:
    """All inner products of rows that lie in several blocks; each pair of blocks is multiplied once."""
    starts = [0]
    for block in blocks:
        starts.append(starts[-1] + len(block))
    out = blocks[0].new_empty(starts[-1], starts[-1])
    for i, left in enumerate(blocks):
        for j in range(i, len(blocks)):
            part = left @ blocks[j].T
            out[starts[i] : starts[i + 1], starts[j] : starts[j + 1]] = part
            if j > i:
                out[starts[j] : starts[j + 1], starts[i] : starts[i + 1]] = part.T
    return out


def mix(weights: Tensor, tables: Sequence[Tensor]) -> Tensor:
    """Personal tables [n, m, d]: row u is the mean of all tables with weights W_u."""
    out = tables[0].new_zeros(len(weights), *tables[0].shape[1:])
    start = 0
    for block in tables:
        out.flatten(1).addmm_(weights[:, start : start + len(block)], block.flatten(1))
        start += len(block)
    return out
