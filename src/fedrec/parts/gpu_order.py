# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
"""Pairs of positions of histories on a GPU; ``fedrec.parts.order`` defines what is added and has the torch twin.

Entries are whole numbers, so it does not matter in which order they are added up: sums are those of every other device.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 128
PROGRAMS = 1 << 12
"""For one client at most: a device takes 65,535 of them."""
WHOLE = tl.constexpr(
    6755399441055744.0
)  # 1.5 * 2**52: adding and taking it off again rounds to whole numbers, ties to even


@triton.jit(do_not_specialize=["width", "size", "alike"])
def add_pairs(
    items, lengths, near, left, after, scale, past, then, width, size, alike, TILE: tl.constexpr
):  # fmt: skip
    """All pairs of some positions of one client."""
    client = tl.program_id(0).to(tl.int64)
    n = tl.load(lengths + client).to(tl.int32)
    for i in range(tl.program_id(1), n, tl.num_programs(1)):
        row = tl.load(items + client * width + i).to(tl.int64)
        share = tl.load(scale + client)
        for start in range(0, n, TILE):
            j = start + tl.arange(0, TILE)
            valid = j < n
            column = tl.load(items + client * width + j, valid, other=0).to(tl.int64)
            gap, later = tl.where(j > i, j - i, i - j), tl.maximum(i, j)
            entry = tl.load(near + gap, valid, other=0.0) * tl.load(left + (n - 1 - later), valid, other=0.0)
            entry = ((entry + WHOLE) - WHOLE) + alike
            entry = ((entry * share) + WHOLE) - WHOLE
            tl.atomic_add(past + row * size + column, entry.to(tl.int64), valid & (row <= column), sem="relaxed")
            entry = (tl.where(j > i, tl.load(after + gap, valid, other=0), 0) + alike).to(tl.float64)
            entry = ((entry * share) + WHOLE) - WHOLE
            tl.atomic_add(then + row * size + column, entry.to(tl.int64), valid, sem="relaxed")


def add_all(
    past: Tensor, after: Tensor, items: Tensor, lengths: Tensor, tables: tuple[Tensor, ...], alike: int
) -> None:
    """Add the entries of all clients; ``tables`` are near, left, after and the clients' scales."""
    longest = int(lengths.max()) if len(lengths) else 0
    if not longest:
        return
    near, left, then, scale = tables
    with torch.cuda.device_of(past):
        add_pairs[len(items), min(longest, PROGRAMS)](
            items.contiguous(), lengths, near, left, then, scale, past, after, items.shape[1], len(past), alike,
            TILE=TILE, num_warps=4, enable_fp_fusion=False,  # a product is rounded before anything is added to it
        )  # fmt: skip
