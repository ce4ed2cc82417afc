# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
"""Networks on user and item on a GPU, merged or not: the twin of ``fedrec.local.merged`` for them, and of ``fedrec.local.pair_network``.

One client per program. The user's half of the network's first layer is one vector for all samples, which joins the biases; the first
columns of a row, which are multiplied by the user's, have no weights in it. As in ``factorisation``, gradients of rows are added
up in fixed point; those of networks and adapters are sums over tiles, one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedrec.local.fit import Params, Schedule, Step
from fedrec.local.gpu import adapter
from fedrec.local.gpu.adapter import FIXED
from fedrec.local.gpu.factorisation import adam, end_epoch, epoch_ranges, fresh_state, slope_and_loss
from fedrec.local.gpu.perceptron import (
    add_at,
    add_first,
    cells,
    fall,
    load_layer,
    move,
    numbers,
    padded,
    rise,
    sum_of_squares,
)
from fedrec.local.linear import LinearUnit
from fedrec.sampling.gpu_streams import shuffled
from fedrec.sampling.samples import Samples

PRECISION = "tf32x3"  # three products on tensor cores, which together keep nearly all bits of float32
TILE, MOST = 4096, 64  # units of the widest layer, and samples, that a program looks at together: more spill registers
WARPS = 4


@triton.jit
def look(rows, code, valid, D: tl.constexpr, COLUMNS: tl.constexpr):
    """Rows of the samples."""
    k = tl.arange(0, COLUMNS)
    cell = (code >> 1)[:, None] * D + k[None, :]
    return tl.load(rows + cell, valid[:, None] & (k < D)[None, :], other=0.0)


@triton.jit
def weigh(
    mine, added, theta,
    D: tl.constexpr, COLUMNS: tl.constexpr, HIDDEN: tl.constexpr, PADDED: tl.constexpr, DEPTH: tl.constexpr,
    OUT: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """An adapter's hidden units and the weights rho of rows ``mine`` and what the server's rows add to them."""
    cell, inside = cells(2 * D, 0, D, HIDDEN[0], COLUMNS, PADDED[0])
    near, far = tl.load(theta + cell, inside, other=0.0), tl.load(theta + D + cell, inside, other=0.0)
    first = tl.dot(mine, near, input_precision=EXACT) + tl.dot(added, far, input_precision=EXACT)
    first += numbers(theta + 2 * D * HIDDEN[0], HIDDEN[0], PADDED[0])[None, :]
    layers = rise(tl.maximum(first, 0.0), theta + HIDDEN[0] * (2 * D + 1), HIDDEN, PADDED, DEPTH, EXACT)
    out = numbers(theta + OUT, HIDDEN[DEPTH - 1], PADDED[DEPTH - 1])
    bias = tl.load(theta + OUT + HIDDEN[DEPTH - 1])
    return layers, tl.sigmoid(tl.sum(layers[DEPTH - 1] * out[None, :], 1) + bias)


@triton.jit
def unweigh(
    slope, layers, theta, grad,
    HIDDEN: tl.constexpr, PADDED: tl.constexpr, DEPTH: tl.constexpr, OUT: tl.constexpr, LEARN: tl.constexpr,
    EXACT: tl.constexpr,
):  # fmt: skip
    """Slope before the first ReLU of an adapter, from that before its sigmoid; LEARN adds gradients, but the first layer's."""
    last: tl.constexpr = HIDDEN[DEPTH - 1]
    if LEARN:
        add_first(grad + OUT, tl.sum(slope[:, None] * layers[DEPTH - 1], 0), last, PADDED[DEPTH - 1])
        add_first(grad + OUT + last, tl.sum(slope, 0)[None], 1, 1)
    out = numbers(theta + OUT, last, PADDED[DEPTH - 1])
    return fall(
        slope[:, None] * out[None, :], layers, theta + OUT, grad + OUT, HIDDEN, PADDED, DEPTH, LEARN, EXACT
    )  # fmt: skip


@triton.jit
def of_user(
    user, network, FIRST: tl.constexpr, D: tl.constexpr, COLUMNS: tl.constexpr, WIDTH: tl.constexpr, P: tl.constexpr,
    OUT: tl.constexpr,
):  # fmt: skip
    """What a user vector makes of a network: biases of the first hidden units, and weights of a row's first columns."""
    k = tl.arange(0, COLUMNS)
    cell, inside = cells(2 * (D - FIRST), FIRST, D, WIDTH, COLUMNS, P)
    own = numbers(user, D, COLUMNS)
    bias = numbers(network + 2 * (D - FIRST) * WIDTH, WIDTH, P)
    bias += tl.sum(tl.load(network + cell, inside, other=0.0) * own[:, None], 0)
    return bias, own * tl.load(network + OUT + k, k < FIRST, other=0.0)


@triton.jit
def score(
    rows, bias, product, network,
    FIRST: tl.constexpr, D: tl.constexpr, COLUMNS: tl.constexpr, HIDDEN: tl.constexpr, PADDED: tl.constexpr,
    DEPTH: tl.constexpr, OUT: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """A network's hidden units and the logits of rows."""
    half: tl.constexpr = D - FIRST
    cell, inside = cells(2 * half, FIRST, D, HIDDEN[0], COLUMNS, PADDED[0])
    weight = tl.load(network + half + cell, inside, other=0.0)
    first = tl.dot(rows, weight, input_precision=EXACT) + bias[None, :]
    layers = rise(tl.maximum(first, 0.0), network + HIDDEN[0] * (2 * half + 1), HIDDEN, PADDED, DEPTH, EXACT)
    out = numbers(network + OUT + FIRST, HIDDEN[DEPTH - 1], PADDED[DEPTH - 1])
    logit = tl.sum(layers[DEPTH - 1] * out[None, :], 1) + tl.load(network + OUT + FIRST + HIDDEN[DEPTH - 1])
    return layers, logit + tl.sum(rows * product[None, :], 1)


@triton.jit
def score_along(
    rows, along, bias, product, network,
    FIRST: tl.constexpr, D: tl.constexpr, COLUMNS: tl.constexpr, HIDDEN: tl.constexpr, PADDED: tl.constexpr,
    DEPTH: tl.constexpr, OUT: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Logits of rows, and their slopes ``along`` a direction for each row: on the way up, so no layer need be kept."""
    half: tl.constexpr = D - FIRST
    cell, inside = cells(2 * half, FIRST, D, HIDDEN[0], COLUMNS, PADDED[0])
    weight = tl.load(network + half + cell, inside, other=0.0)
    units = tl.dot(rows, weight, input_precision=EXACT) + bias[None, :]
    slant = tl.dot(along, weight, input_precision=EXACT)
    at = network + HIDDEN[0] * (2 * half + 1)
    for layer in tl.static_range(1, DEPTH):
        slant = tl.where(units > 0, slant, 0.0)
        weight, above = load_layer(at, HIDDEN[layer - 1], HIDDEN[layer], PADDED[layer - 1], PADDED[layer])
        units = tl.dot(tl.maximum(units, 0.0), weight, input_precision=EXACT) + above[None, :]
        slant = tl.dot(slant, weight, input_precision=EXACT)
        at += HIDDEN[layer] * (HIDDEN[layer - 1] + 1)
    out = numbers(network + OUT + FIRST, HIDDEN[DEPTH - 1], PADDED[DEPTH - 1])
    logit = tl.sum(tl.maximum(units, 0.0) * out[None, :], 1) + tl.load(network + OUT + FIRST + HIDDEN[DEPTH - 1])
    slant = tl.sum(tl.where(units > 0, slant, 0.0) * out[None, :], 1)
    return logit + tl.sum(rows * product[None, :], 1), slant + tl.sum(along * product[None, :], 1)


@triton.jit
def pull_back(
    slope, rows, layers, product, network, grad,
    FIRST: tl.constexpr, D: tl.constexpr, COLUMNS: tl.constexpr, HIDDEN: tl.constexpr, PADDED: tl.constexpr,
    DEPTH: tl.constexpr, OUT: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Slope in the rows, from that in their logits; adds the network's gradients, for ``spread`` to complete."""
    half: tl.constexpr = D - FIRST
    last: tl.constexpr = HIDDEN[DEPTH - 1]
    out = numbers(network + OUT + FIRST, last, PADDED[DEPTH - 1])
    add_first(grad + OUT, tl.sum(slope[:, None] * rows, 0), FIRST, COLUMNS)
    add_first(grad + OUT + FIRST, tl.sum(slope[:, None] * layers[DEPTH - 1], 0), last, PADDED[DEPTH - 1])
    add_first(grad + OUT + FIRST + last, tl.sum(slope, 0)[None], 1, 1)
    down = fall(
        slope[:, None] * out[None, :], layers, network + OUT, grad + OUT, HIDDEN, PADDED, DEPTH, True, EXACT
    )  # fmt: skip
    cell, inside = cells(2 * half, FIRST, D, HIDDEN[0], COLUMNS, PADDED[0])
    add_at(grad + half + cell, tl.dot(tl.trans(rows), down, input_precision=EXACT), inside)
    add_first(grad + 2 * half * HIDDEN[0], tl.sum(down, 0), HIDDEN[0], PADDED[0])
    weight = tl.load(network + half + cell, inside, other=0.0)
    return tl.dot(down, tl.trans(weight), input_precision=EXACT) + slope[:, None] * product[None, :]


@triton.jit
def spread(
    user, network, grad, FIRST: tl.constexpr, D: tl.constexpr, COLUMNS: tl.constexpr, WIDTH: tl.constexpr,
    P: tl.constexpr, OUT: tl.constexpr,
):  # fmt: skip
    """Complete a network's gradient by what meets the user vector; returns that vector and its gradient."""
    k = tl.arange(0, COLUMNS)
    own = numbers(user, D, COLUMNS)
    slope = numbers(grad + 2 * (D - FIRST) * WIDTH, WIDTH, P)
    cell, inside = cells(2 * (D - FIRST), FIRST, D, WIDTH, COLUMNS, P)
    gradient = tl.sum(tl.load(network + cell, inside, other=0.0) * slope[None, :], 1)
    tl.store(grad + cell, own[:, None] * slope[None, :], inside)
    of_product = tl.load(grad + OUT + k, k < FIRST, other=0.0)
    gradient += of_product * tl.load(network + OUT + k, k < FIRST, other=0.0)
    tl.debug_barrier()
    tl.store(grad + OUT + k, of_product * own, k < FIRST)
    return own, gradient


@triton.jit(do_not_specialize=["clients", "width", "most_rows", "first", "last", "batch_size"])
def train_clients(
    theta, theta_moment, theta_square, theta_grad, user, user_moment, user_square,
    network, network_moment, network_square, network_grad, local, moment, square, pulls, server, order,
    counts, row_counts, state, losses, clients, width, most_rows, first, last, batch_size, adapter_lr, lr, decay, tol,
    D: tl.constexpr, COLUMNS: tl.constexpr, SAMPLES: tl.constexpr, BLOCK: tl.constexpr,
    A_HIDDEN: tl.constexpr, A_PADDED: tl.constexpr, A_DEPTH: tl.constexpr, A_OUT: tl.constexpr, A_SIZE: tl.constexpr,
    FIRST: tl.constexpr, HIDDEN: tl.constexpr, PADDED: tl.constexpr, DEPTH: tl.constexpr, OUT: tl.constexpr,
    SIZE: tl.constexpr, ADAPTS: tl.constexpr, JOINT: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Epochs first..last-1 of one client: every batch is a step on the adapter, a joint one on all else, or both."""
    client = tl.program_id(0).to(tl.int64)
    n, r = tl.load(counts + client).to(tl.int32), tl.load(row_counts + client).to(tl.int32)
    power1, power2 = tl.load(state + 4 * client), tl.load(state + 4 * client + 1)
    total, runs = tl.load(state + 4 * client + 2), tl.load(state + 4 * client + 3) > 0
    k = tl.arange(0, COLUMNS)
    real = k < D
    mind, layers, block = client * D, client * SIZE, client * most_rows * D
    rows, theirs, here = local + block, server + block, pulls + block
    adapts, adapts_grad = theta + client * A_SIZE, theta_grad + client * A_SIZE
    net, net_grad = network + layers, network_grad + layers
    for epoch in range(first, last):
        if runs & (n > 0):
            samples = order + ((epoch - first) * clients + client) * width
            epoch_sum = tl.full([], 0.0, tl.float64)
            for start in range(0, n, batch_size):
                stop = tl.minimum(start + batch_size, n)
                size = (stop - start).to(tl.float32)
                share = 1.0 / size
                power1 *= 0.9
                power2 *= 0.999
                correct = 1.0 / (1 - power1).to(tl.float32)
                scale = 1.0 / tl.sqrt((1 - power2).to(tl.float32))
                bias, product = of_user(user + mind, net, FIRST, D, COLUMNS, HIDDEN[0], PADDED[0], OUT)
                if decay > 0:
                    epoch_sum += 0.5 * decay * size * sum_of_squares(net, SIZE, BLOCK)
                if ADAPTS:
                    for s in range(start, stop, SAMPLES):
                        place = s + tl.arange(0, SAMPLES)
                        valid = place < stop
                        code = tl.load(samples + place, valid, other=0)
                        mine = look(rows, code, valid, D, COLUMNS)
                        added = look(theirs, code, valid, D, COLUMNS) - mine
                        weighing, rho = weigh(
                            mine, added, adapts, D, COLUMNS, A_HIDDEN, A_PADDED, A_DEPTH, A_OUT, EXACT
                        )
                        merged = mine + rho[:, None] * added
                        logit, gain = score_along(
                            merged, added, bias, product, net, FIRST, D, COLUMNS, HIDDEN, PADDED, DEPTH, OUT, EXACT
                        )
                        slope, loss = slope_and_loss(logit, code, valid)
                        if not JOINT:
                            epoch_sum += loss
                        down = unweigh(
                            slope * gain * rho * (1 - rho), weighing, adapts, adapts_grad,
                            A_HIDDEN, A_PADDED, A_DEPTH, A_OUT, True, EXACT,
                        )  # fmt: skip
                        cell, inside = cells(2 * D, 0, D, A_HIDDEN[0], COLUMNS, A_PADDED[0])
                        add_at(adapts_grad + cell, tl.dot(tl.trans(mine), down, input_precision=EXACT), inside)
                        add_at(adapts_grad + D + cell, tl.dot(tl.trans(added), down, input_precision=EXACT), inside)
                        add_first(adapts_grad + 2 * D * A_HIDDEN[0], tl.sum(down, 0), A_HIDDEN[0], A_PADDED[0])
                        tl.debug_barrier()
                    at = client * A_SIZE
                    move(
                        adapts, adapts_grad, theta_moment + at, theta_square + at, A_SIZE, share, 0.0,
                        adapter_lr * correct, scale, BLOCK,
                    )  # fmt: skip
                    tl.debug_barrier()
                if JOINT:
                    for s in range(start, stop, SAMPLES):
                        place = s + tl.arange(0, SAMPLES)
                        valid = place < stop
                        code = tl.load(samples + place, valid, other=0)
                        mine = look(rows, code, valid, D, COLUMNS)
                        merged = mine
                        if ADAPTS:
                            added = look(theirs, code, valid, D, COLUMNS) - mine
                            weighing, rho = weigh(
                                mine, added, adapts, D, COLUMNS, A_HIDDEN, A_PADDED, A_DEPTH, A_OUT, EXACT
                            )
                            merged = mine + rho[:, None] * added
                        units, logit = score(
                            merged, bias, product, net, FIRST, D, COLUMNS, HIDDEN, PADDED, DEPTH, OUT, EXACT
                        )
                        slope, loss = slope_and_loss(logit, code, valid)
                        epoch_sum += loss
                        pull = pull_back(
                            slope, merged, units, product, net, net_grad,
                            FIRST, D, COLUMNS, HIDDEN, PADDED, DEPTH, OUT, EXACT,
                        )  # fmt: skip
                        if ADAPTS:
                            # A local row enters the score itself and both halves of the adapter's input.
                            down = unweigh(
                                tl.sum(pull * added, 1) * rho * (1 - rho), weighing, adapts, adapts_grad,
                                A_HIDDEN, A_PADDED, A_DEPTH, A_OUT, False, EXACT,
                            )  # fmt: skip
                            cell, inside = cells(2 * D, 0, D, A_HIDDEN[0], COLUMNS, A_PADDED[0])
                            near = tl.load(adapts + cell, inside, other=0.0)
                            away = near - tl.load(adapts + D + cell, inside, other=0.0)
                            pull = (1 - rho)[:, None] * pull + tl.dot(down, tl.trans(away), input_precision=EXACT)
                        cell = (code >> 1)[:, None] * D + k[None, :]
                        fixed = (pull * FIXED).to(tl.int64)
                        tl.atomic_add(here + cell, fixed, valid[:, None] & real[None, :], sem="relaxed")
                        tl.debug_barrier()
                    own, gradient = spread(user + mind, net, net_grad, FIRST, D, COLUMNS, HIDDEN[0], PADDED[0], OUT)
                    tl.debug_barrier()
                    rate = lr * correct
                    m = tl.load(user_moment + mind + k, real, other=0.0)
                    v = tl.load(user_square + mind + k, real, other=0.0)
                    own, m, v = adam(own, gradient * share, m, v, rate, scale)
                    tl.store(user + mind + k, own, real)
                    tl.store(user_moment + mind + k, m, real)
                    tl.store(user_square + mind + k, v, real)
                    move(
                        net, net_grad, network_moment + layers, network_square + layers, SIZE, share, decay, rate, scale,
                        BLOCK,
                    )  # fmt: skip
                    move(rows, here, moment + block, square + block, r * D, share / FIXED, 0.0, rate, scale, BLOCK)
                    tl.debug_barrier()
            total, runs = end_epoch(losses, client, epoch, n, epoch_sum, total, tol)
    tl.store(state + 4 * client, power1)
    tl.store(state + 4 * client + 1, power2)
    tl.store(state + 4 * client + 2, total)
    tl.store(state + 4 * client + 3, runs.to(tl.float64))


def train(problem: Any, params: Params, samples: Samples, schedule: Schedule, steps: Sequence[Step]) -> Tensor:
    """Train the adapters, and with more steps what the problem trains on merged rows."""
    if type(problem.problem) is LinearUnit:
        return adapter.train_unit(problem, params, samples, schedule, steps)
    rates = float(steps[0].rate), float(steps[1].rate if len(steps) > 1 else 0)
    tables = params["adapter"], params["local"], params["server"]
    return _train(problem.problem, problem.adapter.widths, tables, rates, params, samples, schedule, len(steps) > 1)


def train_network(problem: Any, params: Params, samples: Samples, schedule: Schedule, steps: Sequence[Step]) -> Tensor:
    """Train user vectors, networks and the touched rows jointly, without merging."""
    tables = params["network"], params["block"], params["block"]
    return _train(problem, (), tables, (0.0, float(steps[0].rate)), params, samples, schedule, True)


def _shape(widths: Sequence[int], prefix: str, product: int = 0) -> dict[str, Any]:
    """A network's sizes as a kernel wants them: widths of its hidden layers, where they end, and the length of all."""
    hidden = tuple(widths[1:])
    out = sum(n_out * (n_in + 1) for n_in, n_out in zip(widths[:-1], hidden, strict=True))
    size = out + product + sum(hidden[-1:]) + 1
    sizes = {"HIDDEN": hidden, "PADDED": padded(hidden), "DEPTH": len(hidden), "OUT": out, "SIZE": size}
    return {prefix + name: value for name, value in sizes.items()}


def _train(
    problem: Any, widths: Sequence[int], tables: tuple[Tensor, Tensor, Tensor], rates: tuple[float, float],
    params: Params, samples: Samples, schedule: Schedule, joint: bool,
) -> Tensor:  # fmt: skip
    """With the widths of an adapter there is a step on it in every batch; ``joint`` adds one on everything else."""
    theta, local, server = tables
    user, network, adapts = params["user"], params["network"], len(widths) > 0
    (c, r, d), device = local.shape, local.device
    losses = torch.zeros(c, device=device)
    if not c or not samples.slots.numel():
        return losses

    def states(x: Tensor, moves: bool) -> list[Tensor]:
        """Moments and gradient: one by one, because code is compiled for their alignment."""
        return [torch.zeros_like(x) for _ in range(3)] if moves else [x, x, x]

    pulls = torch.zeros(c, r, d, dtype=torch.int64, device=device) if joint else samples.counts
    state, (columns,) = fresh_state(samples), padded([d])
    shape = _shape(widths[:-1], "A_") | _shape(problem.widths, "", problem.product) | {"FIRST": problem.product}
    widest = max(columns, *shape["PADDED"])
    inputs = (
        theta, *states(theta, adapts), user, *states(user, joint)[:2], network, *states(network, joint),
        local, *states(local, joint)[:2], pulls, server,
    )  # fmt: skip
    with torch.cuda.device_of(local):
        for first, last in epoch_ranges(samples, schedule.epochs):
            train_clients[c,](
                *inputs,
                # The adapter alone: the training that follows asks for the same orders.
                shuffled(samples, first, last, keep=not joint and last - first == schedule.epochs),
                samples.counts, samples.row_counts, state, losses,
                c, samples.slots.shape[1], r, first, last, schedule.batch_size,
                *rates, float(problem.decay), float(schedule.early_stop_tol),
                **shape, D=d, COLUMNS=columns, SAMPLES=max(16, min(MOST, TILE // widest)), BLOCK=1024,
                ADAPTS=adapts, JOINT=joint, EXACT=PRECISION, num_warps=WARPS, num_stages=1,
            )  # fmt: skip
    return losses
