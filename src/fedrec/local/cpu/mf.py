"""Matrix factorisation, compiled: what ``fedrec.local.fit.fit`` computes, one client at a time.

The logit of a sample is ``user . row``, so the gradient of a touched row is one number times ``user``. Rows
are kept transposed, [d, R]: for each of the d coordinates, one pass over the touched rows makes the optimiser's
step and adds up the logits that the next batch needs. All loops over rows are long and contiguous, which
lets the compiler vectorise them for any d, and a client's rows stay in the cache.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedrec.compute.cpu import compiled, for_clients
from fedrec.sampling.cpu_streams import epoch_order
from fedrec.sampling.samples import Samples

KEEP2, EPS = np.float32(0.999), np.float32(1e-8)
NEW1, NEW2 = np.float32(0.1), np.float32(0.001)  # 1 - beta, rounded once: 1 - float32(0.999) is off by 1e-5
ZERO, ONE, TWO = np.float32(0), np.float32(1), np.float32(2)


def train_mf(
    user: Tensor,
    block: Tensor,
    samples: Samples,
    *,
    epochs: int,
    batch_size: int,
    lr: float,
    optimizer: str = "adam",
    early_stop_tol: float = 0.0,
) -> Tensor:
    """Train contiguous float32 ``user`` [c, d] and ``block`` [c, R, d] in place; returns last mean losses."""
    if not (user.is_contiguous() and block.is_contiguous() and user.dtype == block.dtype == torch.float32):
        raise ValueError("train_mf needs contiguous float32 tensors")
    losses = torch.zeros(len(user))
    tensors = samples.clients, samples.labels, samples.slots, samples.counts, samples.row_counts
    data = tuple(x.numpy() for x in tensors)
    stream = np.uint64(samples.seed & 0xFFFFFFFFFFFFFFFF), samples.round
    options = epochs, batch_size, float(lr), optimizer == "adam", float(early_stop_tol)
    inputs = data, stream, options, user.detach().numpy(), block.detach().numpy(), losses.numpy()
    counts, rows = samples.counts.numpy(), samples.row_counts.numpy()
    costs = epochs * (20 * counts + 0.7 * user.shape[1] * rows * (counts // batch_size + 1))
    for_clients(lambda first, last: train_range(first, last, *inputs), costs, unit=1)
    return losses


@compiled
def train_range(
    first: int, last: int, data: Any, stream: Any, options: Any, user: Any, block: Any, losses: Any
) -> None:
    """Train the clients at places first..last-1."""
    clients, labels, slots, counts, row_counts = data
    seed, round = stream
    epochs, batch_size, lr, adam, tol = options
    d, most, widest = user.shape[1], slots.shape[1], block.shape[1]
    order, starts = np.empty(most, np.int32), np.empty((4, 256), np.int64)
    packed, spare = np.empty(most, np.uint64), np.empty(most, np.uint64)
    # Three arrays, not one of rank 3: the compiler would lose sight of its parts being contiguous.
    rows, moment = np.empty((d, widest), np.float32), np.empty((d, widest), np.float32)
    square = np.empty((d, widest), np.float32)
    all_logits, all_slopes = np.empty(widest, np.float32), np.empty(widest, np.float32)
    user_state = np.empty((2, d), np.float32)
    for c in range(first, last):
        n, r, own = counts[c], row_counts[c], user[c]
        logits, slopes = all_logits[:r], all_slopes[:r]
        logits[:], user_state[:], moment[:, :r], square[:, :r] = ZERO, ZERO, ZERO, ZERO
        for k in range(d):
            for j in range(r):
                rows[k, j] = block[c, j, k]
                logits[j] += own[k] * rows[k, j]
        step, total = 0, 0.0
        for epoch in range(epochs if n > 0 else 0):
            epoch_order(seed, round, clients[c], epoch, n, order, packed, spare, starts)
            epoch_sum = 0.0
            for start in range(0, n, batch_size):
                slopes[:] = ZERO
                batch = order[start : min(start + batch_size, n)]
                epoch_sum += batch_slopes(batch, slots[c], labels[c], logits, slopes)
                logits[:] = ZERO
                step += 1
                if adam:
                    rate = np.float32(lr / (1.0 - 0.9**step))
                    scale = np.float32(1.0 / math.sqrt(1.0 - 0.999**step))
                    for k in range(d):
                        state = moment[k, :r], square[k, :r]
                        adam_pass(own, user_state, k, rows[k, :r], state, slopes, logits, rate, scale)
                else:
                    for k in range(d):
                        sgd_pass(own, k, rows[k, :r], slopes, logits, np.float32(lr))
            losses[c] = epoch_sum / n
            before = total / (n * max(epoch, 1))
            total += epoch_sum
            if epoch > 0 and abs(total / (n * (epoch + 1)) - before) / abs(before + 1e-5) < tol:
                break
        for k in range(d):
            for j in range(r):
                block[c, j, k] = rows[k, j]


@compiled
def batch_slopes(batch: Any, slots: Any, labels: Any, logits: Any, slopes: Any) -> Any:
    """Add the slope of the batch's mean loss in each row's logit to ``slopes``; returns the summed loss."""
    share = ONE / np.float32(len(batch))
    total, product = 0.0, 1.0
    for sample in batch:
        slot = slots[sample]
        sign = ONE - TWO * labels[sample]
        wrong = sign * logits[slot]
        small = np.float32(math.exp(-abs(wrong)))
        slope = (ONE if wrong >= ZERO else small) / (ONE + small)
        slopes[slot] += sign * slope * share
        # The sum of log(1 + e) is the log of one product; a float64 holds a thousand factors up to 2.
        total += np.float64(max(wrong, ZERO))
        product *= 1.0 + np.float64(small)
        if product > 1e300:
            total += math.log(product)
            product = 1.0
    return total + math.log(product)


@compiled
def adam_pass(
    user: Any, user_state: Any, k: int, row: Any, state: Any, slopes: Any, logits: Any, rate: Any, scale: Any
) -> None:
    """Adam's step on coordinate k of the user and of all rows; adds the new products to ``logits``."""
    moment, square = state
    old = user[k]
    gradient = ZERO
    for j in range(len(row)):
        gradient += slopes[j] * row[j]
    first = user_state[0, k] + (gradient - user_state[0, k]) * NEW1
    second = KEEP2 * user_state[1, k] + NEW2 * gradient * gradient
    new = old - rate * first / (math.sqrt(second) * scale + EPS)
    user_state[0, k], user_state[1, k], user[k] = first, second, new
    for j in range(len(row)):
        gradient = slopes[j] * old
        first = moment[j] + (gradient - moment[j]) * NEW1
        second = KEEP2 * square[j] + NEW2 * gradient * gradient
        weight = row[j] - rate * first / (math.sqrt(second) * scale + EPS)
        moment[j], square[j], row[j] = first, second, weight
        logits[j] += new * weight


@compiled
def sgd_pass(user: Any, k: int, row: Any, slopes: Any, logits: Any, lr: Any) -> None:
    """A gradient step on coordinate k of the user and of all rows; adds the new products to ``logits``."""
    old = user[k]
    gradient = ZERO
    for j in range(len(row)):
        gradient += slopes[j] * row[j]
    new = old - lr * gradient
    user[k] = new
    for j in range(len(row)):
        weight = row[j] - lr * slopes[j] * old
        row[j] = weight
        logits[j] += new * weight
