# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
"""Random streams and epoch orders on a GPU, the same bits as ``fedrec.sampling.streams``.

A client's order of an epoch is the stable argsort of random keys. Keys are few per client, so the place of a sample is
found by counting the keys before its own: no sort, all samples of all clients and epochs at once.

Sizes are marked ``do_not_specialize`` in all kernels: they change from cohort to cohort, and each would be compiled anew.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedrec.sampling import streams
from fedrec.sampling.samples import Samples

STEP = tl.constexpr(0x9E3779B97F4A7C15)
FIRST = tl.constexpr(0xBF58476D1CE4E5B9)
SECOND = tl.constexpr(0x94D049BB133111EB)
LAST_KEY = tl.constexpr(0x7FFFFFFF)

RANKED, COMPARED = 128, 32  # samples that a program places, keys it compares them with at once


@triton.jit
def draw(key, index):
    """64 random bits for an int64 key and index."""
    x = key.to(tl.uint64, bitcast=True) + (index.to(tl.uint64) + 1) * STEP
    x = (x ^ (x >> 30)) * FIRST
    x = (x ^ (x >> 27)) * SECOND
    return x ^ (x >> 31)


@triton.jit(do_not_specialize=["clients", "width"])
def fill_keys(keys, counts, out, clients, width, BLOCK: tl.constexpr):
    """Sort keys [e, c, width] as int32 that compare like the unsigned 32 bits they stand for."""
    client = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * clients + client
    index = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    bits = draw(tl.load(keys + row), index) >> 32
    tl.store(out + row * width + index, (bits.to(tl.int64) - 2147483648).to(tl.int32), index < tl.load(counts + client))


@triton.jit(do_not_specialize=["clients", "width"])
def place_samples(keys, counts, slots, labels, out, clients, width, MINE: tl.constexpr, OTHERS: tl.constexpr):
    """Write every sample (slot and label in one number) to its place in the epoch's order."""
    client = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * clients + client
    first = tl.program_id(2) * MINE
    n = tl.load(counts + client).to(tl.int32)
    if first < n:
        index = first + tl.arange(0, MINE)
        others = tl.arange(0, OTHERS)
        mine = tl.load(keys + row * width + index, index < n, other=0)[:, None]
        before = tl.zeros([MINE, OTHERS], tl.int32)
        for start in range(0, first, OTHERS):  # earlier samples win ties
            before += (tl.load(keys + row * width + start + others)[None, :] <= mine).to(tl.int32)
        for start in range(first, first + MINE, OTHERS):
            j = start + others
            key = tl.load(keys + row * width + j, j < n, other=LAST_KEY)[None, :]
            earlier = (key < mine) | ((key == mine) & (j[None, :] < index[:, None]))
            before += (earlier & (j < n)[None, :]).to(tl.int32)
        for start in range(first + MINE, n, OTHERS):
            j = start + others
            before += (tl.load(keys + row * width + j, j < n, other=LAST_KEY)[None, :] < mine).to(tl.int32)
        place = tl.sum(before, 1)
        slot = tl.load(slots + client * width + index, index < n, other=0)
        label = tl.load(labels + client * width + index, index < n, other=0)
        tl.store(out + row * width + place, 2 * slot + label.to(tl.int32), index < n)


def shuffled(samples: Samples, first: int, last: int) -> Tensor:
    """``2 * slot + label`` of every sample in the orders of epochs first..last-1: int32 [e, c, S], undefined padding."""
    c, width = samples.slots.shape
    epochs = torch.arange(first, last, device=samples.slots.device)
    keys = streams.keys(samples.seed, streams.Purpose.SHUFFLE, samples.round, samples.clients)
    keys = streams.child(keys.expand(len(epochs), -1), epochs[:, None]).contiguous()
    drawn = torch.empty(len(epochs), c, width, dtype=torch.int32, device=keys.device)
    out = torch.empty_like(drawn)
    sizes = samples.counts, samples.slots, samples.labels
    if out.numel():
        fill_keys[c, len(epochs), triton.cdiv(width, 1024)](keys, samples.counts, drawn, c, width, BLOCK=1024)
        grid = c, len(epochs), triton.cdiv(width, RANKED)
        place_samples[grid](drawn, *sizes, out, c, width, MINE=RANKED, OTHERS=COMPARED, num_warps=4)
    return out
