"""Matrix factorisation, compiled: what ``fedrec.local.fit.fit`` computes, one client at a time.

The logit of a sample is ``user . row``, so the gradient of a touched row is one number times ``user``. Rows
are kept transposed, [d, R]: for each of the d coordinates, one pass over the touched rows makes the optimiser's
step and adds up the logits that the next batch needs. All loops over rows are long and contiguous, which
lets the compiler vectorise them for any d, and a client's rows stay in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedrec.compute.cpu import compiled, for_clients
from fedrec.local.cpu.shared import ZERO, adam, arrays, batch_slopes, corrections, end_epoch, pack
from fedrec.local.fit import Params, Schedule, Step
from fedrec.sampling.cpu_streams import epoch_order, order_scratch
from fedrec.sampling.samples import Samples


def train(problem: Any, params: Params, samples: Samples, schedule: Schedule, steps: Sequence[Step]) -> Tensor:
    """Train the user vectors and the touched rows jointly."""
    user, block = params["user"], params[problem.rows]
    losses = torch.zeros(len(user))
    (step,), (epochs, batch_size) = steps, (schedule.epochs, schedule.batch_size)
    options = epochs, batch_size, float(step.rate), step.optimizer == "adam", float(schedule.early_stop_tol)
    inputs = *pack(samples), options, *arrays(user, block, losses)
    counts, rows = samples.counts.numpy(), samples.row_counts.numpy()
    costs = epochs * (20 * counts + 0.7 * user.shape[1] * rows * (counts // batch_size + 1))
    for_clients(lambda first, last: train_range(first, last, *inputs), costs, unit=1)
    return losses


@compiled
def train_range(
    first: int, last: int, data: Any, stream: Any, options: Any, user: Any, block: Any, losses: Any
) -> None:
    """Train the clients at places first..last-1."""
    clients, slots, labels, counts, row_counts = data
    seed, round = stream
    epochs, batch_size, lr, uses_adam, tol = options
    d, most, widest = user.shape[1], slots.shape[1], block.shape[1]
    order, packed, spare, starts = order_scratch(most)
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
                if uses_adam:
                    rate, scale = corrections(lr, step)
                    for k in range(d):
                        state = moment[k, :r], square[k, :r]
                        adam_pass(own, user_state, k, rows[k, :r], state, slopes, logits, rate, scale)
                else:
                    for k in range(d):
                        sgd_pass(own, k, rows[k, :r], slopes, logits, np.float32(lr))
            total, done = end_epoch(losses, c, epoch, n, epoch_sum, total, tol)
            if done:
                break
        for k in range(d):
            for j in range(r):
                block[c, j, k] = rows[k, j]


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
    new, first, second = adam(old, gradient, user_state[0, k], user_state[1, k], rate, scale)
    user_state[0, k], user_state[1, k], user[k] = first, second, new
    for j in range(len(row)):
        weight, moment[j], square[j] = adam(row[j], slopes[j] * old, moment[j], square[j], rate, scale)
        row[j] = weight
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
