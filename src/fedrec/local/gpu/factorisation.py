# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
"""Matrix factorisation on a GPU: the twin of ``fedrec.local.factorisation``, one client per program.

The gradient of a touched row is one number times the user vector, so a batch leaves one number per row: the summed
slopes of its logit. They are added up in fixed point, where the order of the additions does not matter: runs
repeat to the bit. Adam then passes over all touched rows, which stay in the L2 cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedrec.local.fit import Params, Schedule, Step
from fedrec.sampling.gpu_streams import shuffled
from fedrec.sampling.samples import Samples

FIXED = tl.constexpr(float(1 << 42))  # a slope is at most 1: 2**21 of them fit, each good to 2e-13
ORDERED = 1 << 28  # samples whose order is held at once, 4 bytes each


@triton.jit
def adam(value, gradient, moment, square, rate, scale):
    """One step of Adam: the new value and moments."""
    moment += (gradient - moment) * 0.1
    square = 0.999 * square + 0.001 * gradient * gradient
    return value - rate * moment / (tl.sqrt(square) * scale + 1e-8), moment, square


@triton.jit
def slope_and_loss(logit, code, valid):
    """Slope of each sample's loss in its logit, and the summed loss."""
    sign = (1 - 2 * (code & 1)).to(tl.float32)
    wrong = sign * logit
    small = tl.exp(-tl.abs(wrong))
    slope = sign * tl.where(wrong >= 0, 1.0, small) / (1 + small)
    loss = tl.maximum(wrong, 0.0) + tl.log(1 + small)
    return tl.where(valid, slope, 0.0), tl.sum(tl.where(valid, loss, 0.0), 0).to(tl.float64)


@triton.jit
def end_epoch(losses, client, epoch, n, epoch_sum, total, tol):
    """Note the loss; returns the sum of all epochs and whether the client goes on."""
    tl.store(losses + client, (epoch_sum / n).to(tl.float32))
    before = total / (n * tl.maximum(epoch, 1)).to(tl.float64)
    total += epoch_sum
    change = tl.abs(total / (n * (epoch + 1)).to(tl.float64) - before)
    return total, (epoch == 0) | (change >= tol * tl.abs(before + 1e-5))


@triton.jit(do_not_specialize=["clients", "width", "most_rows", "first", "last", "batch_size"])
def train_clients(
    user, user_moment, user_square, block, moment, square, slopes, order,
    counts, row_counts, state, losses, clients, width, most_rows,
    first, last, batch_size, lr, tol,
    D: tl.constexpr, COLUMNS: tl.constexpr, SAMPLES: tl.constexpr, ROWS: tl.constexpr, ADAM: tl.constexpr,
):  # fmt: skip
    """Epochs first..last-1 of one client; ``state`` carries the powers of Adam's betas, the loss, and whether it runs."""
    client = tl.program_id(0).to(tl.int64)
    n, r = tl.load(counts + client).to(tl.int32), tl.load(row_counts + client).to(tl.int32)
    power1, power2 = tl.load(state + 4 * client), tl.load(state + 4 * client + 1)
    total, runs = tl.load(state + 4 * client + 2), tl.load(state + 4 * client + 3) > 0
    k = tl.arange(0, COLUMNS)
    real = k < D
    own = tl.load(user + client * D + k, real, other=0.0)
    own_moment = tl.load(user_moment + client * D + k, real, other=0.0)
    own_square = tl.load(user_square + client * D + k, real, other=0.0)
    rows, rows_moment, rows_square = (
        block + client * most_rows * D, moment + client * most_rows * D, square + client * most_rows * D,
    )  # fmt: skip
    # Two buffers of slopes: one is read while the other, read a batch ago, is cleared.
    here, there = slopes + client * most_rows, slopes + (clients + client) * most_rows
    for epoch in range(first, last):
        if runs & (n > 0):
            samples = order + ((epoch - first) * clients + client) * width
            epoch_sum = tl.full([], 0.0, tl.float64)
            for start in range(0, n, batch_size):
                stop = tl.minimum(start + batch_size, n)
                share = 1.0 / (stop - start).to(tl.float32)
                gradient = tl.zeros([COLUMNS], tl.float32)
                for at in range(start, stop, SAMPLES):
                    place = at + tl.arange(0, SAMPLES)
                    valid = place < stop
                    code = tl.load(samples + place, valid, other=0)
                    slot = code >> 1
                    picked = tl.load(rows + slot[:, None] * D + k[None, :], valid[:, None] & real[None, :], other=0.0)
                    slope, loss = slope_and_loss(tl.sum(picked * own[None, :], 1), code, valid)
                    epoch_sum += loss
                    gradient += tl.sum(slope[:, None] * picked, 0)
                    tl.atomic_add(here + slot, (slope * FIXED).to(tl.int64), valid, sem="relaxed")
                tl.debug_barrier()
                old = own
                power1 *= 0.9
                power2 *= 0.999
                rate = lr
                scale = 1.0
                if ADAM:
                    rate = lr / (1 - power1).to(tl.float32)
                    scale = 1.0 / tl.sqrt((1 - power2).to(tl.float32))
                    own, own_moment, own_square = adam(own, gradient * share, own_moment, own_square, rate, scale)
                else:
                    own -= lr * share * gradient
                for j0 in range(0, r, ROWS):
                    j = j0 + tl.arange(0, ROWS)
                    pull = tl.load(here + j, j < r, other=0).to(tl.float32) * (share / FIXED)
                    tl.store(there + j, tl.zeros([ROWS], tl.int64), j < r)
                    cell = j[:, None] * D + k[None, :]
                    inside = (j < r)[:, None] & real[None, :]
                    value = tl.load(rows + cell, inside, other=0.0)
                    slant = pull[:, None] * old[None, :]
                    if ADAM:
                        m = tl.load(rows_moment + cell, inside, other=0.0)
                        v = tl.load(rows_square + cell, inside, other=0.0)
                        value, m, v = adam(value, slant, m, v, rate, scale)
                        tl.store(rows_moment + cell, m, inside)
                        tl.store(rows_square + cell, v, inside)
                    else:
                        value -= lr * slant
                    tl.store(rows + cell, value, inside)
                tl.debug_barrier()
                here, there = there, here
            total, runs = end_epoch(losses, client, epoch, n, epoch_sum, total, tol)
    tl.store(user + client * D + k, own, real)
    tl.store(user_moment + client * D + k, own_moment, real)
    tl.store(user_square + client * D + k, own_square, real)
    tl.store(state + 4 * client, power1)
    tl.store(state + 4 * client + 1, power2)
    tl.store(state + 4 * client + 2, total)
    tl.store(state + 4 * client + 3, runs.to(tl.float64))


def epoch_ranges(samples: Samples, epochs: int) -> list[tuple[int, int]]:
    """Epochs cut into ranges whose orders fit the memory meant for them."""
    step = max(1, ORDERED // max(1, samples.slots.numel()))
    return [(first, min(first + step, epochs)) for first in range(0, epochs, step)]


def sample_tile(batch_size: int, columns: int) -> int:
    """Samples that a program looks at together: a batch, or as much of it as the registers hold."""
    return int(max(16, min(256, 8192 // columns, triton.next_power_of_2(batch_size))))


def fresh_state(samples: Samples) -> Tensor:
    """State of clients before their first epoch: [c, 4] float64."""
    state = torch.ones(len(samples.slots), 4, dtype=torch.float64, device=samples.slots.device)
    state[:, 2] = 0
    return state


def train(problem: Any, params: Params, samples: Samples, schedule: Schedule, steps: Sequence[Step]) -> Tensor:
    """Train the user vectors and the touched rows jointly."""
    user, block, (step,) = params["user"], params[problem.rows], steps
    (c, r, d), device = block.shape, block.device
    losses = torch.zeros(c, device=device)
    if not c or not samples.slots.numel():
        return losses
    uses_adam, batch_size = step.optimizer == "adam", schedule.batch_size
    columns = triton.next_power_of_2(d)
    moments = [torch.zeros_like(x) if uses_adam or x is user else x for x in (user, user, block, block)]
    slopes = torch.empty(2, c, r, dtype=torch.int64, device=device)
    state = fresh_state(samples)
    with torch.cuda.device_of(block):
        for first, last in epoch_ranges(samples, schedule.epochs):
            slopes.zero_()
            train_clients[c,](
                user, moments[0], moments[1], block, moments[2], moments[3], slopes, shuffled(samples, first, last),
                samples.counts, samples.row_counts, state, losses, c, samples.slots.shape[1], r,
                first, last, batch_size, float(step.rate), float(schedule.early_stop_tol),
                D=d, COLUMNS=columns, SAMPLES=sample_tile(batch_size, columns),
                ROWS=max(16, 2048 // columns), ADAM=uses_adam, num_warps=8, num_stages=1,
            )  # fmt: skip
    return losses
