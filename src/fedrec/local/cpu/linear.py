"""The linear score unit, compiled: what ``fedrec.local.fit.fit`` computes for PFedRec and for FedRAP.

A unit [d + 1] holds weights and a bias ([d]: no bias); the logit of a sample is ``weights . row + bias``, so that the
gradient of a row is one number, its slope, times the weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedrec.compute.cpu import compiled, for_clients
from fedrec.local.cpu.mf import batch_slopes
from fedrec.sampling.cpu_streams import epoch_order
from fedrec.sampling.samples import Samples

ZERO = np.float32(0)


def _inputs(samples: Samples) -> tuple[Any, Any]:
    tensors = samples.clients, samples.labels, samples.slots, samples.counts, samples.row_counts
    return tuple(x.numpy() for x in tensors), (np.uint64(samples.seed & 0xFFFFFFFFFFFFFFFF), samples.round)


def train_linear(
    unit: Tensor, block: Tensor, samples: Samples, *, epochs: int, batch_size: int, lr: float, lr_item: float
) -> Tensor:
    """PFedRec's plain SGD in place: per batch a step on ``unit`` [c, d + 1], then one on ``block`` [c, R, d]."""
    losses = torch.zeros(len(unit))
    data, stream = _inputs(samples)
    options = epochs, batch_size, np.float32(lr), np.float32(lr_item)
    arrays = unit.numpy(), block.numpy(), losses.numpy()
    costs = epochs * samples.counts.numpy() * (30 + 2 * block.shape[2])
    for_clients(lambda first, last: linear_range(first, last, data, stream, options, *arrays), costs, unit=1)
    return losses


@compiled
def linear_range(
    first: int, last: int, data: Any, stream: Any, options: Any, unit: Any, block: Any, losses: Any
) -> None:
    """Train the clients at places first..last-1."""
    clients, labels, slots, counts, _ = data
    seed, round = stream
    epochs, batch_size, lr, lr_item = options
    most, widest, d = slots.shape[1], block.shape[1], block.shape[2]
    order, starts = np.empty(most, np.int32), np.empty((4, 256), np.int64)
    packed, spare = np.empty(most, np.uint64), np.empty(most, np.uint64)
    logits, slopes = np.empty(widest, np.float32), np.zeros(widest, np.float32)
    gradient = np.empty(d + 1, np.float32)
    for c in range(first, last):
        n, own, rows = counts[c], unit[c], block[c]
        for epoch in range(epochs if n > 0 else 0):
            epoch_order(seed, round, clients[c], epoch, n, order, packed, spare, starts)
            total = 0.0
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
                total += batch_slopes(batch, slots[c], labels[c], logits, slopes)
                for sample in batch:
                    slot = slots[c, sample]
                    move = lr_item * slopes[slot]
                    slopes[slot] = ZERO
                    for k in range(d):
                        rows[slot, k] -= move * own[k]
            losses[c] = total / n


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


def train_additive(
    unit: Tensor,
    personal: Tensor,
    common: Tensor,
    shrunk: Tensor,
    samples: Samples,
    *,
    epochs: int,
    batch_size: int,
    lr: float,
    lr_rows: float,
    lr_decay: float,
    weight_decay: float,
    apart: float,
    l1: float,
    l2: float,
    early_stop_tol: float,
) -> Tensor:
    """FedRAP's plain SGD in place, one joint step per batch on ``unit`` and the rows ``personal`` and ``common`` [c, R, d].

    The loss has the terms ``-apart * mean (D - C)^2 + l1 * mean |C| + l2 * mean C^2`` over the rows of the batch.
    ``shrunk`` [c] is multiplied by what weight decay leaves of a row that no sample touches.
    """
    losses = torch.zeros(len(unit))
    data, stream = _inputs(samples)
    options = epochs, batch_size, lr, lr_rows, lr_decay, weight_decay, apart, l1, l2, early_stop_tol
    arrays = unit.numpy(), personal.numpy(), common.numpy(), shrunk.numpy(), losses.numpy()
    counts, rows = samples.counts.numpy(), samples.row_counts.numpy()
    costs = epochs * (20 * counts + 1.5 * common.shape[2] * rows * (counts // batch_size + 1))
    for_clients(lambda first, last: additive_range(first, last, data, stream, options, *arrays), costs, unit=1)
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
    """Train the clients at places first..last-1; rows are kept transposed, as in ``fedrec.local.cpu.mf``."""
    clients, labels, slots, counts, row_counts = data
    seed, round = stream
    epochs, batch_size, lr, lr_rows, lr_decay, weight_decay, apart, l1, l2, tol = options
    most, widest, d = slots.shape[1], common.shape[1], common.shape[2]
    order, starts = np.empty(most, np.int32), np.empty((4, 256), np.int64)
    packed, spare = np.empty(most, np.uint64), np.empty(most, np.uint64)
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
            losses[c] = epoch_sum / n
            before = total / (n * max(epoch, 1))
            total += epoch_sum
            if epoch > 0 and abs(total / (n * (epoch + 1)) - before) / abs(before + 1e-5) < tol:
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
