"""Counter-based random numbers in torch: the same bits on any device, for any cohort and order of clients.

Every number is a hash of (seed, purpose, round, client, index). ``fedrec.sampling.cpu_streams`` has
the same bits in compiled code. int64 tensors stand for uint64: sums and products wrap around the same way.
"""

from __future__ import annotations

import math
from enum import IntEnum

import torch
from torch import Tensor

from fedrec.compute import dispatch
from fedrec.compute.cpu import for_clients
from fedrec.sampling.cpu_streams import fill_orders, stream_of


class Purpose(IntEnum):
    """What a stream is used for; streams of different purposes are independent."""

    SHUFFLE = 0
    NEGATIVES = 1
    INIT = 2
    NOISE = 3
    PARTICIPATION = 4
    ORDER = 5
    EVALUATION = 6
    OTHER = 7
    DROPOUT = 8


def _signed(value: int) -> int:
    value &= 0xFFFFFFFFFFFFFFFF
    return value - (1 << 64) if value >> 63 else value


_STEP = _signed(0x9E3779B97F4A7C15)
_FIRST = _signed(0xBF58476D1CE4E5B9)
_SECOND = _signed(0x94D049BB133111EB)


def _shifted(x: Tensor, by: int) -> Tensor:
    # >> on int64 copies the sign bit; the mask makes it the unsigned shift.
    return (x >> by).bitwise_and_((1 << (64 - by)) - 1)


def _mix(x: Tensor) -> Tensor:
    # In place, x is always a fresh tensor: noise for a whole table is millions of numbers.
    x.bitwise_xor_(_shifted(x, 30)).mul_(_FIRST)
    x.bitwise_xor_(_shifted(x, 27)).mul_(_SECOND)
    return x.bitwise_xor_(_shifted(x, 31))


def _mixed(x: int) -> int:
    """``_mix`` of one number: on a GPU, each operation on a tensor costs a launch."""
    for by, factor in ((30, _FIRST), (27, _SECOND), (31, 1)):
        x &= 0xFFFFFFFFFFFFFFFF
        x = (x ^ (x >> by)) * factor
    return x


def child(keys: Tensor, value: Tensor | int) -> Tensor:
    """Keys of the sub-stream ``value`` of every key."""
    return _mix((keys ^ (_signed(value) if isinstance(value, int) else value)) + _STEP)


def keys(seed: int, purpose: Purpose, round: int, clients: Tensor) -> Tensor:
    """Key of the stream of every client for one purpose in one round: int64, the shape of ``clients``."""
    key = 0
    for value in (seed, int(purpose), round):
        key = _mixed((key ^ value) + _STEP)
    return _mix((clients.to(torch.int64) ^ _signed(key)) + _STEP)


def bits(keys: Tensor, index: Tensor) -> Tensor:
    """64 random bits (as int64) for every pair of key and int64 index, which broadcast against each other."""
    return _mix(keys + (index + 1) * _STEP)


def below(keys: Tensor, index: Tensor, n: int) -> Tensor:
    """Random integers in 0..n-1 for n < 2**31."""
    return _shifted(bits(keys, index), 32).mul_(n) >> 32


def uniform(keys: Tensor, index: Tensor) -> Tensor:
    """Random float64 strictly between 0 and 1."""
    return to_uniform(bits(keys, index))


def normal(keys: Tensor, index: Tensor) -> Tensor:
    """Standard normal float64."""
    return to_normal(uniform(keys, index))


def laplace(keys: Tensor, index: Tensor) -> Tensor:
    """Laplace float64 of scale 1 (variance 2)."""
    return to_laplace(uniform(keys, index))


def to_uniform(random: Tensor) -> Tensor:
    """Float64 strictly between 0 and 1 from 64 random bits each."""
    # 52 bits and a half: with 53 the largest value would round to 1.
    return _shifted(random, 12).double().add_(0.5).mul_(2.0**-52)


def to_normal(random: Tensor) -> Tensor:
    """Standard normal values from uniform ones, in place."""
    return random.mul_(2).sub_(1).erfinv_().mul_(math.sqrt(2))


def to_laplace(random: Tensor) -> Tensor:
    """Laplace values of scale 1 (variance 2) from uniform ones, in place."""
    centred = random.sub_(0.5)
    return torch.copysign(centred.abs().mul_(-2).log1p_(), centred)


def epoch_orders(seed: int, round: int, clients: Tensor, epoch: int, counts: Tensor, width: int) -> Tensor:
    """Order in which every client visits its samples in one epoch: int64 [c, width].

    The first ``counts[c]`` entries are a permutation of 0..counts[c]-1 and padding follows, so that every row
    is a permutation of 0..width-1.
    """
    if dispatch.compiled_on(clients.device) != "cpu":
        return sorted_orders(seed, round, clients, epoch, counts, width)
    orders = torch.empty(len(clients), width, dtype=torch.int64)
    inputs = *stream_of(seed, round), clients.numpy(), epoch, counts.numpy(), orders.numpy()
    for_clients(lambda first, last: fill_orders(first, last, *inputs), counts.numpy(), unit=10)
    return orders


def sorted_orders(seed: int, round: int, clients: Tensor, epoch: int, counts: Tensor, width: int) -> Tensor:
    """``epoch_orders`` by the definition, on any device: a stable sort of 32 random bits per sample."""
    index = torch.arange(width, device=clients.device)
    sort_keys = _shifted(bits(child(keys(seed, Purpose.SHUFFLE, round, clients), epoch)[:, None], index), 32)
    sort_keys = torch.where(index < counts[:, None], sort_keys, 1 << 32)
    return torch.sort(sort_keys, dim=1, stable=True).indices
