# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
"""Perceptrons of any depth on a GPU, whose weights, gradients and moments lie in memory, as flat as those of ``fedrec.local.mlp``.

A first layer reads two halves of as many inputs each. ``WIDTHS`` are those of the hidden layers and ``PADDED`` the powers of two that
hold them: a padded unit is 0, and so is its slope. A program has one client, so what a tile of samples adds to a gradient waits in
memory, behind a barrier, for what the next one adds.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl

from fedrec.local.gpu.factorisation import adam

LEAST = 16  # what a dot product takes


@triton.jit
def cells(stride, FIRST: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr, P_IN: tl.constexpr, P_OUT: tl.constexpr):
    """Where the weights of a layer lie, input by output, and which of them there are: inputs before the first have none."""
    i, o = tl.arange(0, P_IN), tl.arange(0, P_OUT)
    there = (i >= FIRST) & (i < IN)
    return o[None, :] * stride + (i - FIRST)[:, None], there[:, None] & (o < OUT)[None, :]


@triton.jit
def numbers(at, N: tl.constexpr, P: tl.constexpr):
    """The first ``N`` numbers, padded."""
    i = tl.arange(0, P)
    return tl.load(at + i, i < N, other=0.0)


@triton.jit
def add_at(at, values, inside):
    """Add to numbers in memory."""
    tl.store(at, tl.load(at, inside, other=0.0) + values, inside)


@triton.jit
def add_first(at, values, N: tl.constexpr, P: tl.constexpr):
    """Add to the first ``N`` numbers."""
    i = tl.arange(0, P)
    add_at(at + i, values, i < N)


@triton.jit
def load_layer(at, IN: tl.constexpr, OUT: tl.constexpr, P_IN: tl.constexpr, P_OUT: tl.constexpr):
    """Weights, input by output, and biases of a layer."""
    cell, inside = cells(IN, 0, IN, OUT, P_IN, P_OUT)
    return tl.load(at + cell, inside, other=0.0), numbers(at + OUT * IN, OUT, P_OUT)


@triton.jit
def rise(units, at, WIDTHS: tl.constexpr, PADDED: tl.constexpr, DEPTH: tl.constexpr, EXACT: tl.constexpr):
    """All hidden layers of units, from those of the first one; ``at`` are the weights of the second."""
    layers = (units,)
    for layer in tl.static_range(1, DEPTH):
        weight, bias = load_layer(at, WIDTHS[layer - 1], WIDTHS[layer], PADDED[layer - 1], PADDED[layer])
        units = tl.maximum(tl.dot(units, weight, input_precision=EXACT) + bias[None, :], 0.0)
        layers += (units,)  # type: ignore[assignment]
        at += WIDTHS[layer] * (WIDTHS[layer - 1] + 1)
    return layers


@triton.jit
def fall(
    slope, layers, out, grad_out, WIDTHS: tl.constexpr, PADDED: tl.constexpr, DEPTH: tl.constexpr,
    LEARN: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Slope before the first layer's ReLU, from that in the last units; LEARN adds the gradients of the layers between.

    ``out`` and ``grad_out`` are where the layers between end, in the weights and in their gradients.
    """
    back = 0
    for layer in tl.static_range(DEPTH - 1, 0, -1):
        back += WIDTHS[layer] * (WIDTHS[layer - 1] + 1)
        slope = tl.where(layers[layer] > 0, slope, 0.0)
        cell, inside = cells(WIDTHS[layer - 1], 0, WIDTHS[layer - 1], WIDTHS[layer], PADDED[layer - 1], PADDED[layer])
        if LEARN:
            gradient = tl.dot(tl.trans(layers[layer - 1]), slope, input_precision=EXACT)
            add_at(grad_out - back + cell, gradient, inside)
            bias = grad_out - back + WIDTHS[layer] * WIDTHS[layer - 1]
            add_first(bias, tl.sum(slope, 0), WIDTHS[layer], PADDED[layer])
        weight = tl.load(out - back + cell, inside, other=0.0)
        slope = tl.dot(slope, tl.trans(weight), input_precision=EXACT)
    return tl.where(layers[0] > 0, slope, 0.0)


@triton.jit
def move(values, grad, moment, square, count, share, decay, rate, scale, BLOCK: tl.constexpr):
    """Adam's step on numbers that lie in a row, whose gradients are ``share`` times what was added up; that becomes 0."""
    for first in range(0, count, BLOCK):
        at = first + tl.arange(0, BLOCK)
        inside = at < count
        gradient = tl.load(grad + at, inside, other=0).to(tl.float32) * share
        tl.debug_barrier()  # nobody clears what another has yet to read
        tl.store(grad + at, 0, inside)
        value = tl.load(values + at, inside, other=0.0)
        m, v = tl.load(moment + at, inside, other=0.0), tl.load(square + at, inside, other=0.0)
        value, m, v = adam(value, gradient + decay * value, m, v, rate, scale)
        tl.store(values + at, value, inside)
        tl.store(moment + at, m, inside)
        tl.store(square + at, v, inside)


@triton.jit
def sum_of_squares(values, count, BLOCK: tl.constexpr):
    """Of numbers that lie in a row."""
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(0, count, BLOCK):
        at = first + tl.arange(0, BLOCK)
        value = tl.load(values + at, at < count, other=0.0)
        total += value * value
    return tl.sum(total, 0)


def padded(widths: Sequence[int]) -> tuple[int, ...]:
    """What holds so many units."""
    return tuple(max(LEAST, int(triton.next_power_of_2(width))) for width in widths)
