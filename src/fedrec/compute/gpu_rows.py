# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
"""Rows of item tables on a GPU, copied many at a time: torch starts a group of threads for every row, however short."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 4096  # numbers that a program copies


@triton.jit(do_not_specialize=["stride", "most_rows"])
def copy_rows(
    table, owners, rows, counts, block, stride, most_rows,
    D: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr, PUT: tl.constexpr,
):  # fmt: skip
    """Copy some of a client's rows between its table and the block, which is written unless PUT."""
    client = tl.program_id(0).to(tl.int64)
    j, k = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    here = j < (tl.load(counts + client) if PUT else most_rows)
    items = tl.load(rows + client * most_rows + j, here, other=0)
    inside = here[:, None] & (k < D)[None, :]
    there = table + tl.load(owners + client) * stride + items.to(tl.int64)[:, None] * D + k[None, :]
    cell = block + client * most_rows * D + j[:, None] * D + k[None, :]
    if PUT:
        tl.store(there, tl.load(cell, inside), inside)
    else:
        tl.store(cell, tl.load(there, inside), inside)


def _copy(table: Tensor, owners: Tensor, rows: Tensor, counts: Tensor, block: Tensor, *, put: bool) -> None:
    c, r, d = block.shape
    columns = int(triton.next_power_of_2(d))
    tile = max(1, TILE // columns)
    stride = table.shape[1] * d if table.dim() == 3 else 0
    if block.numel():
        with torch.cuda.device_of(table):
            copy_rows[c, triton.cdiv(r, tile)](
                table, owners, rows, counts, block, stride, r, D=d, COLUMNS=columns, ROWS=tile, PUT=put, num_warps=4
            )


def take(table: Tensor, rows: Tensor, owners: Tensor) -> Tensor:
    """Rows [c, R] of the owners' tables among [n, m, d], or of one table [m, d]: [c, R, d], padding included."""
    block = table.new_empty(*rows.shape, table.shape[-1])
    _copy(table, owners, rows.contiguous(), owners, block, put=False)
    return block


def put(table: Tensor, rows: Tensor, owners: Tensor, counts: Tensor, block: Tensor) -> None:
    """Write the first ``counts`` [c] rows of each owner's block [c, R, d] back, in place."""
    _copy(table, owners, rows.contiguous(), counts, block.contiguous(), put=True)
