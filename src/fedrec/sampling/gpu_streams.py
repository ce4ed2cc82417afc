# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
"""Random streams and epoch orders on a GPU, the same bits as ``fedrec.sampling.streams``.

A client's order of an epoch is the stable argsort of random keys. Keys are uniform, so they are thrown into buckets of
equal ranges, some four samples each: a sample's place is where its bucket starts, plus the samples of the bucket that
come before it. All samples of many clients and epochs at once. Samples reach a bucket in any order, but only how many
there are and which of them come first counts: runs repeat to the bit.

Sizes are marked ``do_not_specialize`` in all kernels: they change from cohort to cohort, and each would be compiled anew.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedrec.sampling import streams
from fedrec.sampling.samples import Samples

STEP = tl.constexpr(0x9E3779B97F4A7C15)
FIRST = tl.constexpr(0xBF58476D1CE4E5B9)
SECOND = tl.constexpr(0x94D049BB133111EB)
PER_BUCKET = tl.constexpr(4)  # samples in a bucket, on average

BLOCK, WARPS = 512, 4  # samples that a program looks at, and its warps
HELD = 1 << 26  # samples, with padding, whose buckets are held at once, ten bytes each


@triton.jit
def draw(key, index):
    """64 random bits for an int64 key and index."""
    x = key.to(tl.uint64, bitcast=True) + (index.to(tl.uint64) + 1) * STEP
    x = (x ^ (x >> 30)) * FIRST
    x = (x ^ (x >> 27)) * SECOND
    return x ^ (x >> 31)


@triton.jit
def bucket_of(bits, n):
    """The bucket of 32 random bits among those of n samples; it grows with the bits."""
    buckets = ((n + PER_BUCKET - 1) // PER_BUCKET).to(tl.uint64)
    return ((bits * buckets) >> 32).to(tl.int32)


@triton.jit
def start_of(ends, bucket, valid):
    """Where a bucket starts: where the one before it ends."""
    return tl.load(ends + bucket - 1, valid & (bucket > 0), other=0)


@triton.jit(do_not_specialize=["clients", "width", "buckets"])
def count_samples(keys, counts, sizes, arrivals, clients, width, buckets, BLOCK: tl.constexpr):
    """Throw samples into buckets; ``arrivals`` says how many were there before each of them."""
    client = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * clients + client
    first = tl.program_id(2) * BLOCK
    n = tl.load(counts + client).to(tl.int32)
    if first < n:
        index = first + tl.arange(0, BLOCK)
        bucket = bucket_of(draw(tl.load(keys + row), index) >> 32, n)
        before = tl.atomic_add(sizes + row * buckets + bucket, 1, index < n, sem="relaxed")
        tl.store(arrivals + row * width + index, before, index < n)


@triton.jit(do_not_specialize=["clients", "width", "buckets"])
def fill_buckets(keys, counts, ends, arrivals, held, clients, width, buckets, BLOCK: tl.constexpr):
    """List the samples bucket by bucket, key and index in one number, which orders them."""
    client = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * clients + client
    first = tl.program_id(2) * BLOCK
    n = tl.load(counts + client).to(tl.int32)
    if first < n:
        index = first + tl.arange(0, BLOCK)
        bits = draw(tl.load(keys + row), index) >> 32
        place = start_of(ends + row * buckets, bucket_of(bits, n), index < n)
        place += tl.load(arrivals + row * width + index, index < n, other=0)
        tl.store(held + row * width + place, (bits.to(tl.int64) << 31) | index, index < n)


@triton.jit(do_not_specialize=["clients", "width", "buckets"])
def place_samples(held, counts, ends, slots, labels, out, clients, width, buckets, BLOCK: tl.constexpr):
    """Write every sample (slot and label in one number) to its place in the epoch's order."""
    client = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * clients + client
    first = tl.program_id(2) * BLOCK
    n = tl.load(counts + client).to(tl.int32)
    if first < n:
        at = first + tl.arange(0, BLOCK)
        valid = at < n
        mine = tl.load(held + row * width + at, valid, other=0)
        bucket = bucket_of((mine >> 31).to(tl.uint64), n)
        start = start_of(ends + row * buckets, bucket, valid)
        size = tl.load(ends + row * buckets + bucket, valid, other=0) - start
        place = start
        for member in range(0, tl.max(size, 0)):
            other = tl.load(held + row * width + start + member, valid & (member < size), other=0)
            place += ((member < size) & (other < mine)).to(tl.int32)
        index = (mine & 0x7FFFFFFF).to(tl.int32)
        slot = tl.load(slots + client * width + index, valid, other=0)
        label = tl.load(labels + client * width + index, valid, other=0)
        tl.store(out + row * width + place, 2 * slot + label.to(tl.int32), valid)


_kept: WeakKeyDictionary[Samples, tuple[int, Tensor]] = WeakKeyDictionary()


def shuffled(samples: Samples, first: int, last: int, *, keep: bool = False) -> Tensor:
    """``2 * slot + label`` of every sample in the orders of epochs first..last-1: int32 [e, c, S], undefined padding.

    With ``keep`` they are held for the next call with the same samples, which takes them if it wants no other epochs.
    """
    start, orders = _kept.pop(samples, (0, None))
    if orders is None or first < start or last > start + len(orders):
        start, orders = first, _orders(samples, first, last)
    if keep:
        _kept[samples] = start, orders
    return orders[first - start : last - start]


def _orders(samples: Samples, first: int, last: int) -> Tensor:
    c, width = samples.slots.shape
    epochs = torch.arange(first, last, device=samples.slots.device)
    keys = streams.keys(samples.seed, streams.Purpose.SHUFFLE, samples.round, samples.clients)
    keys = streams.child(keys.expand(len(epochs), -1), epochs[:, None]).contiguous()
    out = torch.empty(len(epochs), c, width, dtype=torch.int32, device=keys.device)
    if not out.numel():
        return out
    buckets = triton.cdiv(width, PER_BUCKET.value)
    for part, of in zip(*(x.split(max(1, HELD // (c * width))) for x in (out, keys)), strict=True):
        grid, sizes = (c, len(part), triton.cdiv(width, BLOCK)), (c, width, buckets)
        found = torch.zeros(len(part), c, buckets, dtype=torch.int32, device=keys.device)
        held = torch.empty(part.shape, dtype=torch.int64, device=keys.device)
        # Arrivals need no room of their own: the last step, which writes the orders, no longer looks at them.
        count_samples[grid](of, samples.counts, found, part, *sizes, BLOCK=BLOCK, num_warps=WARPS)
        ends = found.cumsum(2, dtype=torch.int32)
        fill_buckets[grid](of, samples.counts, ends, part, held, *sizes, BLOCK=BLOCK, num_warps=WARPS)
        places = held, samples.counts, ends, samples.slots, samples.labels, part
        place_samples[grid](*places, *sizes, BLOCK=BLOCK, num_warps=WARPS)
    return out
