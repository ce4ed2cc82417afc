"""Counter-based random numbers for compiled code; ``fedrec.sampling.streams`` has the same bits in torch.

Every number is a hash of (seed, purpose, round, client, index), so it does not matter in which order, on how
many threads or in which cohort clients are visited. The hash is the splitmix64 finaliser.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedrec.compute.cpu import compiled

STEP = np.uint64(0x9E3779B97F4A7C15)  # odd, close to 2**64 / golden ratio: spreads consecutive indices
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)
SHUFFLE = np.uint64(0)  # the value of ``Purpose.SHUFFLE``; compiled code reads no enums


def stream_of(seed: int, round: int) -> tuple[np.uint64, int]:
    """Seed and round as compiled code takes them; a negative seed wraps around, as it does in torch."""
    return np.uint64(seed & 0xFFFFFFFFFFFFFFFF), round


@compiled
def mix(x: Any) -> Any:
    """Hash one uint64 (a bijection)."""
    x = (x ^ (x >> np.uint64(30))) * FIRST
    x = (x ^ (x >> np.uint64(27))) * SECOND
    return x ^ (x >> np.uint64(31))


@compiled
def child(key: Any, value: Any) -> Any:
    """Key of the sub-stream ``value`` of ``key``."""
    return mix((key ^ np.uint64(value)) + STEP)


@compiled
def client_key(seed: Any, purpose: Any, round: Any, client: Any) -> Any:
    """Key of the stream that one client uses for one purpose in one round."""
    return child(child(child(child(np.uint64(0), seed), purpose), round), client)


@compiled
def draw(key: Any, index: Any) -> Any:
    """64 random bits: number ``index`` of the stream ``key``."""
    return mix(key + (np.uint64(index) + np.uint64(1)) * STEP)


@compiled
def below(key: Any, index: Any, n: Any) -> Any:
    """A random integer in 0..n-1 for n < 2**31, from the top 32 bits of a draw."""
    return np.int64(((draw(key, index) >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))


@compiled
def order_scratch(n: int) -> Any:
    """Room for an order of up to n samples and what ``epoch_order`` needs beside it."""
    return np.empty(n, np.int32), np.empty(n, np.uint64), np.empty(n, np.uint64), np.empty((4, 256), np.int64)


@compiled
def epoch_order(
    seed: Any, round: Any, client: Any, epoch: Any, n: Any, order: Any, packed: Any, spare: Any, starts: Any
) -> None:
    """Fill ``order[:n]`` with the permutation in which a client visits its samples in one epoch.

    It is the stable argsort of 32-bit keys, by a radix sort; the other arrays are scratch, see ``order_scratch``.
    """
    key = child(client_key(seed, SHUFFLE, round, client), epoch)
    starts[:, :] = 0
    for i in range(n):
        bits = draw(key, i) >> np.uint64(32)
        packed[i] = (bits << np.uint64(32)) | np.uint64(i)
        starts[0, bits & np.uint64(255)] += 1
        starts[1, (bits >> np.uint64(8)) & np.uint64(255)] += 1
        starts[2, (bits >> np.uint64(16)) & np.uint64(255)] += 1
        starts[3, bits >> np.uint64(24)] += 1
    source, target = packed, spare
    for digit in range(4):
        total = np.int64(0)
        for value in range(256):
            total, starts[digit, value] = total + starts[digit, value], total
        shift = np.uint64(32 + 8 * digit)
        for i in range(n):
            element = source[i]
            bucket = np.int64((element >> shift) & np.uint64(255))
            target[starts[digit, bucket]] = element
            starts[digit, bucket] += 1
        source, target = target, source
    for i in range(n):
        order[i] = np.int32(source[i] & np.uint64(0xFFFFFFFF))


@compiled
def fill_orders(
    first: int, last: int, seed: Any, round: Any, clients: Any, epoch: Any, counts: Any, orders: Any
) -> None:
    """Fill row c of ``orders`` with the epoch order of ``clients[c]``, for c = first..last-1."""
    width = orders.shape[1]
    _, packed, spare, starts = order_scratch(width)
    for c in range(first, last):
        epoch_order(seed, round, clients[c], epoch, counts[c], orders[c], packed, spare, starts)
        for i in range(counts[c], width):
            orders[c, i] = i
