"""Distances and means of whole item tables relative to their common mean, by products on a GPU's tensor cores.

Tensor cores cut factors to 10 bits (TF32). Tables of clients have much in common; with their mean taken off first, what
is cut is small against what tells them apart. docs/methods/fedem.md says how small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor

from fedrec.compute.tensor_cores import tf32

Products = Literal["tf32", "float32"]
HELD = 1 << 26  # numbers of all tables that are centred at once, 4 bytes each
PANELS = 3  # parts of a symmetric product: of so many, two thirds of it is computed, and each still fills a GPU


def on_tensor_cores(products: Products, tables: Sequence[Tensor]) -> bool:
    """Whether these tables lie where ``products`` makes a difference."""
    return products == "tf32" and all(table.is_cuda and table.dtype == torch.float32 for table in tables)


def column_parts(rows: int, columns: int) -> list[slice]:
    """Columns in parts of like width, multiples of 64, so that all rows of a part are at most ``HELD`` numbers."""
    parts = -(-columns // max(64, HELD // max(1, rows)))
    width = 64 * -(-columns // (64 * max(1, parts)))
    return [slice(first, min(first + width, columns)) for first in range(0, columns, width)]


def centred(blocks: Sequence[Tensor]) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Columns of the rows in all blocks [c, w], part by part: which they are, their means, and the rows [n, .] less these."""
    n = sum(map(len, blocks))
    for columns in column_parts(n, blocks[0].shape[1]):
        parts = [block[:, columns] for block in blocks]
        mean = torch.stack([part.sum(0) for part in parts]).sum(0) / n
        rows = mean.new_empty(n, len(mean))
        first = 0
        for part in parts:
            torch.sub(part, mean, out=rows[first : first + len(part)])
            first += len(part)
        yield columns, mean, rows


def add_product(out: Tensor, left: Tensor, right: Tensor) -> None:
    """Add ``left @ right`` to ``out``."""
    out.addmm_(left, right)


def centred_products(blocks: Sequence[Tensor]) -> Tensor:
    """All inner products of the rows of several blocks less their common mean; of a symmetric pair one is computed."""
    n = sum(map(len, blocks))
    out = blocks[0].new_zeros(n, n)
    step = -(-n // PANELS)
    panels = [(first, min(first + step, n)) for first in range(0, n, step)]
    with tf32():
        for _, _, rows in centred(blocks):
            for first, last in panels:
                add_product(out[first:last, first:], rows[first:last], rows[first:].T)
    for first, last in panels:
        out[last:, first:last] = out[first:last, last:].T
    return out


def centred_mix(weights: Tensor, tables: Sequence[Tensor]) -> Tensor:
    """``mix``, as the mean of all tables and what they deviate from it; a client's own table counts in float32."""
    out = tables[0].new_empty(len(weights), *tables[0].shape[1:])
    flat, total = out.flatten(1), weights.sum(1, keepdim=True)
    own = weights.diagonal()[:, None].clone()
    others = weights.clone().fill_diagonal_(0)
    with tf32():
        for columns, mean, rows in centred([table.flatten(1) for table in tables]):
            part = flat[:, columns]
            torch.mul(total, mean, out=part)
            part[: len(own)].addcmul_(own, rows[: len(own)])
            add_product(part, others, rows)
    return out
