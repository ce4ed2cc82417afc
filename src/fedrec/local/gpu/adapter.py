# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
"""Merging adapters on a GPU: the twin of ``fedrec.local.adapters`` and, for linear units, ``fedrec.local.merged``; one client per
program. A user vector is a unit without bias.

For adapters of two hidden layers, the usual ones. Weights and their moments stay in registers, padded with zeros to
powers of two: a padded unit is 0, and so is its gradient. As in ``factorisation``, gradients of rows are added up in fixed
point.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedrec.local.fit import Params, Schedule, Step
from fedrec.local.gpu.factorisation import adam, end_epoch, epoch_ranges, fresh_state, slope_and_loss
from fedrec.sampling.gpu_streams import shuffled
from fedrec.sampling.samples import Samples

FIXED = tl.constexpr(float(1 << 36))  # sums of gradients up to 10**8, good to 1e-11
PRECISION = "ieee"  # plain float32; on the tensor cores products this small spill registers
TILE = 1024  # numbers of the sampled rows that a program looks at together, as many as its registers hold


@triton.jit
def load_weights(
    theta,
    D: tl.constexpr, H1: tl.constexpr, H2: tl.constexpr, COLUMNS: tl.constexpr, P1: tl.constexpr, P2: tl.constexpr,
):  # fmt: skip
    """The layers at ``theta``: both halves of the first one, input by output, its biases, and so on."""
    k, i, j = tl.arange(0, COLUMNS), tl.arange(0, P1), tl.arange(0, P2)
    inside1 = (k < D)[:, None] & (i < H1)[None, :]
    inside2 = (i < H1)[:, None] & (j < H2)[None, :]
    at1 = theta + i[None, :] * (2 * D) + k[:, None]
    second = theta + H1 * (2 * D + 1)
    third = second + H2 * (H1 + 1)
    near = tl.load(at1, inside1, other=0.0)
    far = tl.load(at1 + D, inside1, other=0.0)
    bias1 = tl.load(theta + 2 * D * H1 + i, i < H1, other=0.0)
    w2 = tl.load(second + j[None, :] * H1 + i[:, None], inside2, other=0.0)
    bias2 = tl.load(second + H1 * H2 + j, j < H2, other=0.0)
    w3 = tl.load(third + j, j < H2, other=0.0)
    return near, far, bias1, w2, bias2, w3, tl.load(third + H2)


@triton.jit
def store_weights(
    theta, near, far, bias1, w2, bias2, w3, bias3,
    D: tl.constexpr, H1: tl.constexpr, H2: tl.constexpr, COLUMNS: tl.constexpr, P1: tl.constexpr, P2: tl.constexpr,
):  # fmt: skip
    """Undo ``load_weights``."""
    k, i, j = tl.arange(0, COLUMNS), tl.arange(0, P1), tl.arange(0, P2)
    inside1 = (k < D)[:, None] & (i < H1)[None, :]
    inside2 = (i < H1)[:, None] & (j < H2)[None, :]
    at1 = theta + i[None, :] * (2 * D) + k[:, None]
    second = theta + H1 * (2 * D + 1)
    third = second + H2 * (H1 + 1)
    tl.store(at1, near, inside1)
    tl.store(at1 + D, far, inside1)
    tl.store(theta + 2 * D * H1 + i, bias1, i < H1)
    tl.store(second + j[None, :] * H1 + i[:, None], w2, inside2)
    tl.store(second + H1 * H2 + j, bias2, j < H2)
    tl.store(third + j, w3, j < H2)
    tl.store(third + H2, bias3)


@triton.jit
def forward(mine, added, near, far, bias1, w2, bias2, w3, bias3, EXACT: tl.constexpr):
    """Both hidden layers and the weights rho of rows ``mine`` and what the server's rows add to them."""
    first = tl.dot(mine, near, input_precision=EXACT) + tl.dot(added, far, input_precision=EXACT) + bias1[None, :]
    first = tl.maximum(first, 0.0)
    second = tl.maximum(tl.dot(first, w2, input_precision=EXACT) + bias2[None, :], 0.0)
    return first, second, tl.sigmoid(tl.sum(second * w3[None, :], 1) + bias3)


@triton.jit
def look(local, server, code, valid, own, D: tl.constexpr, COLUMNS: tl.constexpr):
    """Rows of the samples, what the server adds to them, and what both give to the logit."""
    k = tl.arange(0, COLUMNS)
    cell = (code >> 1)[:, None] * D + k[None, :]
    inside = valid[:, None] & (k < D)[None, :]
    mine = tl.load(local + cell, inside, other=0.0)
    added = tl.load(server + cell, inside, other=0.0) - mine
    return mine, added, tl.sum(mine * own[None, :], 1), tl.sum(added * own[None, :], 1)


@triton.jit(do_not_specialize=["clients", "width", "most_rows", "first", "last", "batch_size"])
def adapt_clients(
    theta, theta_moment, theta_square, user, user_moment, user_square, local, moment, square, pulls, server, order,
    counts, row_counts, state, losses, clients, width, most_rows, first, last, batch_size, adapter_lr, lr, row_lr, tol,
    D: tl.constexpr, H1: tl.constexpr, H2: tl.constexpr, COLUMNS: tl.constexpr, P1: tl.constexpr, P2: tl.constexpr,
    SAMPLES: tl.constexpr, ROWS: tl.constexpr, BIAS: tl.constexpr, STAGES: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Epochs first..last-1 of one client: every batch is a step on theta, then STAGES more.

    One is a joint step of Adam on unit and rows; two are gradient steps, on the unit and then, looking again, on the rows.
    """
    client = tl.program_id(0).to(tl.int64)
    n, r = tl.load(counts + client).to(tl.int32), tl.load(row_counts + client).to(tl.int32)
    power1, power2 = tl.load(state + 4 * client), tl.load(state + 4 * client + 1)
    total, runs = tl.load(state + 4 * client + 2), tl.load(state + 4 * client + 3) > 0
    k = tl.arange(0, COLUMNS)
    real = k < D
    mind = client * (D + BIAS)
    own = tl.load(user + mind + k, real, other=0.0)
    own_moment = tl.load(user_moment + mind + k, real, other=0.0)
    own_square = tl.load(user_square + mind + k, real, other=0.0)
    bias = tl.full([], 0.0, tl.float32)
    if BIAS:
        bias = tl.load(user + mind + D)
    at = client * (H1 * (2 * D + 1) + H2 * (H1 + 1) + H2 + 1)
    near, far, bias1, w2, bias2, w3, bias3 = load_weights(theta + at, D, H1, H2, COLUMNS, P1, P2)
    near_m, far_m, bias1_m, w2_m, bias2_m, w3_m, bias3_m = load_weights(theta_moment + at, D, H1, H2, COLUMNS, P1, P2)
    near_v, far_v, bias1_v, w2_v, bias2_v, w3_v, bias3_v = load_weights(theta_square + at, D, H1, H2, COLUMNS, P1, P2)
    block = client * most_rows * D
    rows, theirs, rows_moment, rows_square = local + block, server + block, moment + block, square + block
    # Two buffers of row gradients: one is read while the other, read a batch ago, is cleared.
    here, there = pulls + block, pulls + (clients + client) * most_rows * D
    for epoch in range(first, last):
        if runs & (n > 0):
            samples = order + ((epoch - first) * clients + client) * width
            epoch_sum = tl.full([], 0.0, tl.float64)
            for start in range(0, n, batch_size):
                stop = tl.minimum(start + batch_size, n)
                share = 1.0 / (stop - start).to(tl.float32)
                power1 *= 0.9
                power2 *= 0.999
                correct = 1.0 / (1 - power1).to(tl.float32)
                scale = 1.0 / tl.sqrt((1 - power2).to(tl.float32))
                near_g, far_g = tl.zeros([COLUMNS, P1], tl.float32), tl.zeros([COLUMNS, P1], tl.float32)
                w2_g = tl.zeros([P1, P2], tl.float32)
                bias1_g, bias2_g = tl.zeros([P1], tl.float32), tl.zeros([P2], tl.float32)
                w3_g = tl.zeros([P2], tl.float32)
                bias3_g = tl.full([], 0.0, tl.float32)
                for s in range(start, stop, SAMPLES):
                    place = s + tl.arange(0, SAMPLES)
                    valid = place < stop
                    code = tl.load(samples + place, valid, other=0)
                    mine, added, base, gain = look(rows, theirs, code, valid, own, D, COLUMNS)
                    unit1, unit2, rho = forward(mine, added, near, far, bias1, w2, bias2, w3, bias3, EXACT)
                    slope, loss = slope_and_loss(base + rho * gain + bias, code, valid)
                    if STAGES == 0:
                        epoch_sum += loss
                    slope3 = share * slope * gain * rho * (1 - rho)
                    slope2 = tl.where(unit2 > 0, slope3[:, None] * w3[None, :], 0.0)
                    slope1 = tl.dot(slope2, tl.trans(w2), input_precision=EXACT)
                    slope1 = tl.where(unit1 > 0, slope1, 0.0)
                    near_g += tl.dot(tl.trans(mine), slope1, input_precision=EXACT)
                    far_g += tl.dot(tl.trans(added), slope1, input_precision=EXACT)
                    w2_g += tl.dot(tl.trans(unit1), slope2, input_precision=EXACT)
                    bias1_g += tl.sum(slope1, 0)
                    bias2_g += tl.sum(slope2, 0)
                    w3_g += tl.sum(slope3[:, None] * unit2, 0)
                    bias3_g += tl.sum(slope3, 0)
                rate = adapter_lr * correct
                near, near_m, near_v = adam(near, near_g, near_m, near_v, rate, scale)
                far, far_m, far_v = adam(far, far_g, far_m, far_v, rate, scale)
                bias1, bias1_m, bias1_v = adam(bias1, bias1_g, bias1_m, bias1_v, rate, scale)
                w2, w2_m, w2_v = adam(w2, w2_g, w2_m, w2_v, rate, scale)
                bias2, bias2_m, bias2_v = adam(bias2, bias2_g, bias2_m, bias2_v, rate, scale)
                w3, w3_m, w3_v = adam(w3, w3_g, w3_m, w3_v, rate, scale)
                bias3, bias3_m, bias3_v = adam(bias3, bias3_g, bias3_m, bias3_v, rate, scale)
                for stage in tl.static_range(STAGES):
                    gradient, bias_g = tl.zeros([COLUMNS], tl.float32), tl.full([], 0.0, tl.float32)
                    for s in range(start, stop, SAMPLES):
                        place = s + tl.arange(0, SAMPLES)
                        valid = place < stop
                        code = tl.load(samples + place, valid, other=0)
                        mine, added, base, gain = look(rows, theirs, code, valid, own, D, COLUMNS)
                        unit1, unit2, rho = forward(mine, added, near, far, bias1, w2, bias2, w3, bias3, EXACT)
                        slope, loss = slope_and_loss(base + rho * gain + bias, code, valid)
                        if stage == 0:
                            gradient += tl.sum(slope[:, None] * (mine + rho[:, None] * added), 0)
                            bias_g += tl.sum(slope, 0)
                        if stage == STAGES - 1:
                            epoch_sum += loss
                            slope2 = tl.where(unit2 > 0, (slope * gain * rho * (1 - rho))[:, None] * w3[None, :], 0.0)
                            slope1 = tl.dot(slope2, tl.trans(w2), input_precision=EXACT)
                            slope1 = tl.where(unit1 > 0, slope1, 0.0)
                            # A local row enters the score itself and both halves of the adapter's input.
                            pull = (slope * (1 - rho))[:, None] * own[None, :]
                            pull += tl.dot(slope1, tl.trans(near - far), input_precision=EXACT)
                            cell = (code >> 1)[:, None] * D + k[None, :]
                            fixed = (pull * FIXED).to(tl.int64)
                            tl.atomic_add(here + cell, fixed, valid[:, None] & real[None, :], sem="relaxed")
                    if stage == STAGES - 1:
                        tl.debug_barrier()
                        if STAGES == 1:
                            rate = lr * correct
                            own, own_moment, own_square = adam(
                                own, gradient * share, own_moment, own_square, rate, scale
                            )
                        for j0 in range(0, r, ROWS):
                            j = j0 + tl.arange(0, ROWS)
                            cell = j[:, None] * D + k[None, :]
                            inside = (j < r)[:, None] & real[None, :]
                            pull = tl.load(here + cell, inside, other=0).to(tl.float32) * (share / FIXED)
                            tl.store(there + cell, tl.zeros([ROWS, COLUMNS], tl.int64), inside)
                            value = tl.load(rows + cell, inside, other=0.0)
                            if STAGES == 1:
                                m = tl.load(rows_moment + cell, inside, other=0.0)
                                v = tl.load(rows_square + cell, inside, other=0.0)
                                value, m, v = adam(value, pull, m, v, rate, scale)
                                tl.store(rows_moment + cell, m, inside)
                                tl.store(rows_square + cell, v, inside)
                            else:
                                value -= row_lr * pull
                            tl.store(rows + cell, value, inside)
                        tl.debug_barrier()
                        here, there = there, here
                    else:
                        own -= lr * share * gradient
                        bias -= lr * share * bias_g
            total, runs = end_epoch(losses, client, epoch, n, epoch_sum, total, tol)
    store_weights(theta + at, near, far, bias1, w2, bias2, w3, bias3, D, H1, H2, COLUMNS, P1, P2)
    store_weights(theta_moment + at, near_m, far_m, bias1_m, w2_m, bias2_m, w3_m, bias3_m, D, H1, H2, COLUMNS, P1, P2)
    store_weights(theta_square + at, near_v, far_v, bias1_v, w2_v, bias2_v, w3_v, bias3_v, D, H1, H2, COLUMNS, P1, P2)
    if STAGES > 0:
        tl.store(user + mind + k, own, real)
    if STAGES == 1:
        tl.store(user_moment + mind + k, own_moment, real)
        tl.store(user_square + mind + k, own_square, real)
    if (STAGES == 2) and BIAS:
        tl.store(user + mind + D, bias)
    tl.store(state + 4 * client, power1)
    tl.store(state + 4 * client + 1, power2)
    tl.store(state + 4 * client + 2, total)
    tl.store(state + 4 * client + 3, runs.to(tl.float64))


@triton.jit(do_not_specialize=["rows", "server_stride"], do_not_specialize_on_alignment=["theta"])
def weigh_rows(
    theta, local, server, rho, rows, server_stride,
    D: tl.constexpr, H1: tl.constexpr, H2: tl.constexpr, COLUMNS: tl.constexpr, P1: tl.constexpr, P2: tl.constexpr,
    ROWS: tl.constexpr, TILES: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Weights rho of TILES * ROWS rows of one client."""
    client = tl.program_id(0).to(tl.int64)
    at = client * (H1 * (2 * D + 1) + H2 * (H1 + 1) + H2 + 1)
    near, far, bias1, w2, bias2, w3, bias3 = load_weights(theta + at, D, H1, H2, COLUMNS, P1, P2)
    k = tl.arange(0, COLUMNS)
    for tile in range(TILES):
        j = (tl.program_id(1) * TILES + tile) * ROWS + tl.arange(0, ROWS)
        cell = j[:, None] * D + k[None, :]
        inside = (j < rows)[:, None] & (k < D)[None, :]
        mine = tl.load(local + client * rows * D + cell, inside, other=0.0)
        added = tl.load(server + client * server_stride + cell, inside, other=0.0) - mine
        _, _, weight = forward(mine, added, near, far, bias1, w2, bias2, w3, bias3, EXACT)
        tl.store(rho + client * rows + j, weight, j < rows)


def _shape(widths: Sequence[int]) -> dict[str, int]:
    d, h1, h2 = widths[0] // 2, widths[1], widths[2]
    columns, p1, p2 = (max(16, int(triton.next_power_of_2(x))) for x in (d, h1, h2))  # the least a dot product takes
    return {"D": d, "H1": h1, "H2": h2, "COLUMNS": columns, "P1": p1, "P2": p2}


def row_weights(problem: Any, theta: Tensor, local: Tensor, server: Tensor) -> Tensor:
    """Weight rho [c, R] of every row of ``local`` [c, R, d] against ``server`` [c, R, d] or [R, d]."""
    c, r, d = local.shape
    rho = local.new_empty(c, r)
    shape, tiles = _shape(problem.widths), 4
    rows = max(16, min(128, 4096 // shape["COLUMNS"]))
    if rho.numel():
        with torch.cuda.device_of(local):
            weigh_rows[c, triton.cdiv(r, rows * tiles)](
                theta, local, server, rho, r, r * d if server.dim() == 3 else 0,
                **shape, ROWS=rows, TILES=tiles, EXACT=PRECISION, num_warps=4,
            )  # fmt: skip
    return rho


def train(problem: Any, params: Params, samples: Samples, schedule: Schedule, steps: Sequence[Step]) -> Tensor:
    """Train the adapter; with two steps every batch also moves the user vector and the local rows."""
    rate = float(steps[1].rate if len(steps) > 1 else 0)
    return _train(problem.widths, params["user"], (rate, rate), params, samples, schedule, steps)


def train_unit(problem: Any, params: Params, samples: Samples, schedule: Schedule, steps: Sequence[Step]) -> Tensor:
    """The same of a linear unit; with three steps every batch also moves the unit, and then the local rows."""
    rates = [float(step.rate) for step in steps[1:]] or [0.0, 0.0]
    return _train(problem.adapter.widths, params["unit"], (rates[0], rates[1]), params, samples, schedule, steps)


def _train(
    widths: Sequence[int], unit: Tensor, rates: tuple[float, float], params: Params, samples: Samples,
    schedule: Schedule, steps: Sequence[Step],
) -> Tensor:  # fmt: skip
    theta, local, server = (params[name] for name in ("adapter", "local", "server"))
    (c, r, d), device = local.shape, local.device
    losses = torch.zeros(c, device=device)
    if not c or not samples.slots.numel():
        return losses
    shape, stages = _shape(widths), len(steps) - 1
    # One by one: parts of one tensor would be aligned differently, and code is compiled for the alignment.
    theta_moments, unit_moments = ([torch.zeros_like(x), torch.zeros_like(x)] for x in (theta, unit))
    row_moments = [torch.zeros_like(local), torch.zeros_like(local)] if stages == 1 else [local, local]
    pulls = torch.empty(2, c, r, d, dtype=torch.int64, device=device) if stages else samples.counts
    state = fresh_state(samples)
    with torch.cuda.device_of(local):
        for first, last in epoch_ranges(samples, schedule.epochs):
            if stages:
                pulls.zero_()
            adapt_clients[c,](
                theta, *theta_moments, unit, *unit_moments, local, *row_moments, pulls, server,
                # The adapter alone: the training that follows asks for the same orders.
                shuffled(samples, first, last, keep=not stages and last - first == schedule.epochs),
                samples.counts, samples.row_counts, state, losses,
                c, samples.slots.shape[1], r, first, last, schedule.batch_size,
                float(steps[0].rate), *rates, float(schedule.early_stop_tol),
                **shape, SAMPLES=max(16, TILE // shape["COLUMNS"]), ROWS=max(16, 1024 // shape["COLUMNS"]),
                BIAS=unit.shape[1] - d, STAGES=stages, EXACT=PRECISION, num_warps=4, num_stages=1,
            )  # fmt: skip
    return losses
