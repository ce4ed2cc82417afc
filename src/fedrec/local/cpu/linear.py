"""The linear score unit, compiled: the twins of the problems in ``fedrec.local.linear``.

The logit of a sample is ``weights . row + bias``, so the gradient of a row is one number, its slope, times the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedrec.compute.cpu import compiled, for_clients
from fedrec.local.cpu.shared import ZERO, arrays, batch_slopes, end_epoch, pack
from fedrec.local.fit import Params, Schedule, Step
from fedrec.sampling.cpu_streams import epoch_order, order_scratch
from fedrec.sampling.samples import Samples


def train_unit(problem: Any, params: Params, samples: Samples, schedule: Schedule, steps: Sequence[Step]) -> Tensor:
    """Per batch a gradient step on the unit, then one on the rows."""
    unit, block = params["unit"], params["block"]
    losses = torch.zeros(len(unit))
    rates = (np.float32(step.rate) for step in steps)
    options = schedule.epochs, schedule.batch_size, *rates, float(schedule.early_stop_tol)
    inputs = *pack(samples), options, *arrays(unit, block, losses)
    costs = schedule.epochs * samples.counts.numpy() * (30 + 2 * block.shape[2])
    for_clients(lambda first, last: linear_range(first, last, *inputs), costs, unit=1)
    return losses


@compiled
def linear_range(
    first: int, last: int, data: Any, stream: Any, options: Any, unit: Any, block: Any, losses: Any
) -> None:
    """Train the clients at places first..last-1."""
    clients, slots, labels, counts, _ = data
    seed, round = stream
    epochs, batch_size, lr, lr_item, tol = options
    most, widest, d = slots.shape[1], block.shape[1], block.shape[2]
    order, packed, spare, starts = order_scratch(most)
    logits, slopes = np.empty(widest, np.float32), np.zeros(widest, np.float32)
    gradient = np.empty(d + 1, np.float32)
    for c in range(first, last):
        n, own, rows, total = counts[c], unit[c], block[c], 0.0
        for epoch in range(epochs if n > 0 else 0):
            epoch_order(seed, round, clients[c], epoch, n, order, packed, spare, starts)
            epoch_sum = 0.0
            for start in range(0, n, batch_size):
                batch = order[start : min(start + batch_size, n)]
                score_batch(batch, slots[c], own, rows, logits)
                batch_slopes(batch, slots[c], labels[c], logits, slopes)
                gradient[:] = ZERO
                for sample in batch:
                    slot = slots[c, sample]
                    slope = slopes[slot]
                    slopes[slot] = ZERO  # an item that comes twice has both slopes in one
                    for k in range(d):
                        gradient[k] += slope * rows[slot, k]
                    gradient[d] += slope
                for k in range(d + 1):
                    own[k] -= lr * gradient[k]
                score_batch(batch, slots[c], own, rows, logits)
                epoch_sum += batch_slopes(batch, slots[c], labels[c], logits, slopes)
                for sample in batch:
                    slot = slots[c, sample]
                    move = lr_item * slopes[slot]
                    slopes[slot] = ZERO
                    for k in range(d):
                        rows[slot, k] -= move * own[k]
            total, done = end_epoch(losses, c, epoch, n, epoch_sum, total, tol)
            if done:
                break


@compiled
def score_batch(batch: Any, slots: Any, unit: Any, rows: Any, logits: Any) -> None:
    """Fill ``logits`` for the rows the batch touches."""
    d = rows.shape[1]
    for sample in batch:
        slot = slots[sample]
        logit = unit[d]
        for k in range(d):
            logit += unit[k] * rows[slot, k]
        logits[slot] = logit


def train_additive(problem: Any, params: Params, samples: Samples, schedule: Schedule, steps: Sequence[Step]) -> Tensor:
    """One joint gradient step per batch on the unit and the rows of both tables."""
    unit, common, (step,) = params["unit"], params["block"], steps
    losses = torch.zeros(len(unit))
    epochs, batch_size, rates = schedule.epochs, schedule.batch_size, step.rates
    numbers = rates["unit"], rates["block"], step.lr_decay, step.weight_decay, problem.apart, problem.l1, problem.l2
    options = epochs, batch_size, *map(float, numbers), float(schedule.early_stop_tol)
    inputs = *pack(samples), options, *arrays(unit, params["personal"], common, params["shrunk"], losses)
    counts, rows = samples.counts.numpy(), samples.row_counts.numpy()
    costs = epochs * (20 * counts + 1.5 * common.shape[2] * rows * (counts // batch_size + 1))
    for_clients(lambda first, last: additive_range(first, last, *inputs), costs, unit=1)
    return losses


@compiled
def additive_range(
    first: int,
    last: int,
    data: Any,
    stream: Any,
    options: Any,
    unit: Any,
    personal: Any,
    common: Any,
    shrunk: Any,
    losses: Any,
) -> None:
    """Train the clients at places first..last-1; rows are kept transposed, as in ``fedrec.local.cpu.factorisation``."""
    clients, slots, labels, counts, row_counts = data
    seed, round = stream
    epochs, batch_size, lr, lr_rows, lr_decay, weight_decay, apart, l1, l2, tol = options
    most, widest, d = slots.shape[1], common.shape[1], common.shape[2]
    order, packed, spare, starts = order_scratch(most)
    mine, shared = np.empty((d, widest), np.float32), np.empty((d, widest), np.float32)
    all_logits, all_slopes = np.empty(widest, np.float32), np.empty(widest, np.float32)
    all_times = np.empty(widest, np.float32)
    decay = np.float32(weight_decay)
    for c in range(first, last):
        n, r, own = counts[c], row_counts[c], unit[c]
        biased = len(own) > d
        logits, slopes, times = all_logits[:r], all_slopes[:r], all_times[:r]
        logits[:] = own[d] if biased else ZERO
        for k in range(d):
            for j in range(r):
                mine[k, j], shared[k, j] = personal[c, j, k], common[c, j, k]
                logits[j] += own[k] * (mine[k, j] + shared[k, j])
        step, total = 0, 0.0
        for epoch in range(epochs if n > 0 else 0):
            epoch_order(seed, round, clients[c], epoch, n, order, packed, spare, starts)
            epoch_sum = 0.0
            for start in range(0, n, batch_size):
                batch = order[start : min(start + batch_size, n)]
                slopes[:], times[:] = ZERO, ZERO
                epoch_sum += batch_slopes(batch, slots[c], labels[c], logits, slopes)
                for sample in batch:
                    times[slots[c, sample]] += np.float32(1)
                now = lr_decay**step
                step += 1
                rates = np.float32(lr * now), np.float32(lr_rows * now), decay
                share = 1.0 / (len(batch) * d)
                forces = np.float32(2 * apart * share), np.float32(l1 * share), np.float32(2 * l2 * share)
                logits[:] = ZERO
                if biased:
                    own[d] -= rates[0] * (slopes.sum() + decay * own[d])
                    logits[:] = own[d]
                far = small = square = 0.0
                for k in range(d):
                    sums = additive_pass(own, k, mine[k, :r], shared[k, :r], slopes, times, logits, rates, forces)
                    far, small, square = far + sums[0], small + sums[1], square + sums[2]
                epoch_sum += (l1 * small + l2 * square - apart * far) / d
                shrunk[c] *= np.float32(1) - rates[1] * decay
            total, done = end_epoch(losses, c, epoch, n, epoch_sum, total, tol)
            if done:
                break
        for k in range(d):
            for j in range(r):
                personal[c, j, k], common[c, j, k] = mine[k, j], shared[k, j]


@compiled
def additive_pass(
    unit: Any, k: int, mine: Any, shared: Any, slopes: Any, times: Any, logits: Any, rates: Any, forces: Any
) -> Any:
    """A step on coordinate k of the unit and of all rows; adds the new products to ``logits``.

    Returns the sums over samples of (D - C)^2, |C| and C^2 before the step.
    """
    lr, lr_rows, decay = rates
    apart, l1, l2 = forces
    old = unit[k]
    gradient, far, small, square = ZERO, ZERO, ZERO, ZERO
    for j in range(len(mine)):
        gradient += slopes[j] * (mine[j] + shared[j])
        away = mine[j] - shared[j]
        far += times[j] * away * away
        small += times[j] * abs(shared[j])
        square += times[j] * shared[j] * shared[j]
    new = old - lr * (gradient + decay * old)
    unit[k] = new
    for j in range(len(mine)):
        own, common = mine[j], shared[j]
        push = times[j] * apart * (own - common)
        shrink = times[j] * (l1 * np.sign(common) + l2 * common)
        own -= lr_rows * (slopes[j] * old - push + decay * own)
        common -= lr_rows * (slopes[j] * old + push + shrink + decay * common)
        mine[j], shared[j] = own, common
        logits[j] += new * (own + common)
    return far, small, square
