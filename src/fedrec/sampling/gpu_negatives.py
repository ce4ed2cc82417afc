# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
"""Negative sampling on a GPU; ``fedrec.sampling.negatives`` defines it and has the torch twin."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedrec.sampling.gpu_streams import draw

TILE = 256


@triton.jit(do_not_specialize=["width", "n_items", "halvings"])
def draw_items(
    clients, keys, positive_offsets, positive_values, excluded_offsets, excluded_values, items, labels, marks,
    width, n_items, halvings, NEGATIVES: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Items and labels of some positives of one client and their negatives; marks the items that were touched."""
    c = tl.program_id(0).to(tl.int64)
    client = tl.load(clients + c)
    first = tl.load(positive_offsets + client)
    n = (tl.load(positive_offsets + client + 1) - first).to(tl.int32)
    if tl.program_id(1) * TILE < n:
        from_, to = tl.load(excluded_offsets + client), tl.load(excluded_offsets + client + 1)
        key = tl.load(keys + c)
        j = tl.program_id(1) * TILE + tl.arange(0, TILE)
        valid = j < n
        out = items + c * width + j * (1 + NEGATIVES)
        positive = tl.load(positive_values + first + j, valid, other=0)
        tl.store(out, positive, valid)
        tl.store(labels + c * width + j * (1 + NEGATIVES), tl.full([TILE], 1.0, tl.float32), valid)
        tl.store(marks + c * n_items + positive, tl.full([TILE], 1, tl.int32), valid)
        for slot in range(NEGATIVES):
            index = j.to(tl.int64) * NEGATIVES + slot
            item = tl.zeros([TILE], tl.int32)
            open_ = valid
            while tl.sum(open_.to(tl.int32), 0) > 0:
                drawn = (((draw(key, index) >> 32) * n_items) >> 32).to(tl.int32)
                item = tl.where(open_, drawn, item)
                # The first excluded item that is not below the drawn one, by binary search.
                low, high = tl.zeros([TILE], tl.int64) + from_, tl.zeros([TILE], tl.int64) + to
                for _ in range(halvings):
                    middle = (low + high) // 2
                    below = tl.load(excluded_values + middle, open_ & (low < high), other=0) < item
                    low, high = tl.where((low < high) & below, middle + 1, low), tl.where(below, high, middle)
                refused = tl.load(excluded_values + low, open_ & (low < to), other=-1) == item
                for earlier in range(slot):
                    refused |= tl.load(out + 1 + earlier, open_, other=-1) == item
                open_ = open_ & refused
                index = tl.where(open_, index + 4294967296, index)
            tl.store(out + 1 + slot, item, valid)
            tl.store(marks + c * n_items + item, tl.full([TILE], 1, tl.int32), valid)
            tl.debug_barrier()  # the next slot reads what this one drew


@triton.jit(do_not_specialize=["n_items", "most"])
def number_rows(marks, rows, row_counts, n_items, most, TILE: tl.constexpr):
    """Turn one client's marks into places among its touched items, and list these."""
    c = tl.program_id(0).to(tl.int64)
    count = tl.full([], 0, tl.int32)
    for start in range(0, n_items, TILE):
        item = start + tl.arange(0, TILE)
        mark = tl.load(marks + c * n_items + item, item < n_items, other=0)
        place = count + tl.cumsum(mark, 0) - mark
        tl.store(marks + c * n_items + item, place, item < n_items)
        tl.store(rows + c * most + place, item, mark > 0)
        count += tl.sum(mark, 0)
    tl.store(row_counts + c, count.to(tl.int64))


@triton.jit(do_not_specialize=["width", "n_items"])
def point_samples(items, places, counts, slots, width, n_items, TILE: tl.constexpr):
    """The row of every sample."""
    c = tl.program_id(0).to(tl.int64)
    index = tl.program_id(1) * TILE + tl.arange(0, TILE)
    valid = index < tl.load(counts + c)
    item = tl.load(items + c * width + index, valid, other=0)
    tl.store(slots + c * width + index, tl.load(places + c * n_items + item, valid, other=0), valid)


def draw_samples(
    clients: Tensor,
    keys: Tensor,
    counts: Tensor,
    positives: tuple[Tensor, Tensor],
    excluded: tuple[Tensor, Tensor],
    *,
    n_items: int,
    negatives: int,
    width: int,
    most_excluded: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Items, labels, slots [c, width], rows [c, R] and row counts of clients with stream ``keys``.

    ``positives`` and ``excluded`` are int64 offsets and int32 values of all clients, the latter ascending.
    """
    c, device = len(clients), clients.device
    items = torch.zeros(c, width, dtype=torch.int32, device=device)
    slots = torch.zeros_like(items)
    labels = torch.zeros(c, width, device=device)
    row_counts = torch.zeros(c, dtype=torch.int64, device=device)
    most = min(width, n_items)
    rows = torch.zeros(c, most, dtype=torch.int32, device=device)
    if not items.numel():
        return items, labels, slots, rows, row_counts
    marks = torch.zeros(c, n_items, dtype=torch.int32, device=device)
    with torch.cuda.device_of(clients):
        draw_items[c, triton.cdiv(width // (1 + negatives), TILE)](
            clients, keys, *positives, *excluded, items, labels, marks,
            width, n_items, most_excluded.bit_length(), NEGATIVES=negatives, TILE=TILE, num_warps=4,
        )  # fmt: skip
        number_rows[c,](marks, rows, row_counts, n_items, most, TILE=1024, num_warps=4)
        point_samples[c, triton.cdiv(width, 1024)](items, marks, counts, slots, width, n_items, TILE=1024, num_warps=4)
    return items, labels, slots, rows[:, : int(row_counts.max())].contiguous(), row_counts
