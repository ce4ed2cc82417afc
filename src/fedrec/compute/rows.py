"""Rows of item tables that lie one per client."""

from __future__ import annotations

import torch
from torch import Tensor

from fedrec.compute import dispatch


def by_kernel(*tables: Tensor) -> bool:
    """Whether a GPU's kernel can copy between these tables: nothing is differentiated through it."""
    plain = all(table.is_contiguous() and not table.requires_grad for table in tables)
    return plain and dispatch.compiled_for(*tables) == "gpu"


def take(table: Tensor, rows: Tensor, owners: Tensor) -> Tensor:
    """Rows [c, R] of the owners' tables among [n, m, d]: [c, R, d], padding included."""
    if by_kernel(table):
        from fedrec.compute import gpu_rows

        return gpu_rows.take(table, rows, owners)
    index = owners[:, None] * table.shape[1] + rows.long()
    return table.view(-1, table.shape[2]).index_select(0, index.flatten()).view(*index.shape, -1)


def put(table: Tensor, rows: Tensor, owners: Tensor, counts: Tensor, block: Tensor) -> None:
    """Write the first ``counts`` [c] rows of each owner's block [c, R, d] back, in place."""
    if by_kernel(table, block):
        from fedrec.compute import gpu_rows

        gpu_rows.put(table, rows, owners, counts, block)
        return
    index = owners[:, None] * table.shape[1] + rows.long()
    valid = torch.arange(rows.shape[1], device=rows.device) < counts[:, None]
    table.view(-1, table.shape[2]).index_copy_(0, index[valid], block[valid])
