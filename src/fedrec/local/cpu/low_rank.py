"""Low-rank matrix factorisation, compiled: the twin of ``fedrec.local.low_rank``, one client at a time.

A row is ``base + low @ projection`` and only ``low`` moves, so with z = projection . user the logit of a sample is
``base . user + low . z``. As in ``fedrec.local.cpu.factorisation`` rows are kept transposed and every loop over them is
long and contiguous.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedrec.compute.cpu import compiled, for_clients
from fedrec.local.cpu.shared import ONE, TWO, ZERO, adam, arrays, batch_slopes, corrections, end_epoch, pack
from fedrec.local.fit import Params, Schedule, Step
from fedrec.sampling.cpu_streams import epoch_order, order_scratch
from fedrec.sampling.samples import Samples


def train(problem: Any, params: Params, samples: Samples, schedule: Schedule, steps: Sequence[Step]) -> Tensor:
    """Train the user vectors and the factors jointly."""
    user, base, low, (step,) = params["user"], params["base"], params["low"], steps
    losses = torch.zeros(len(user))
    epochs, batch_size = schedule.epochs, schedule.batch_size
    settings = step.optimizer == "adam", problem.per_row, np.float32(problem.l2)
    options = epochs, batch_size, float(step.rate), *settings, float(schedule.early_stop_tol)
    inputs = *pack(samples), options, *arrays(user, base, low, problem.projection.contiguous(), losses)
    counts, rows = samples.counts.numpy(), samples.row_counts.numpy()
    costs = epochs * (25 * counts + 0.2 * (user.shape[1] + 4 * low.shape[2]) * rows * (counts // batch_size + 1))
    for_clients(lambda first, last: train_range(first, last, *inputs), costs, unit=1)
    return losses


@compiled
def train_range(
    first: int, last: int, data: Any, stream: Any, options: Any, user: Any, base: Any, low: Any, proj: Any, losses: Any
) -> None:
    """Train the clients at places first..last-1."""
    clients, slots, labels, counts, row_counts = data
    seed, round = stream
    epochs, batch_size, lr, uses_adam, per_row, l2, tol = options
    rank, d, most, widest = proj.shape[0], user.shape[1], slots.shape[1], base.shape[1]
    order, packed, spare, starts = order_scratch(most)
    fixed, moving = np.empty((d, widest), np.float32), np.empty((rank, widest), np.float32)
    slope_in = np.empty((rank, widest), np.float32)  # gradient of ``moving``
    moment, square = np.empty((rank, widest), np.float32), np.empty((rank, widest), np.float32)
    all_logits, all_slopes = np.empty(widest, np.float32), np.empty(widest, np.float32)
    all_seen, pull = np.empty(widest, np.float32), np.empty((rank, widest), np.float32)
    shrink = np.float32(math.sqrt(rank / d))
    own_gradient, own_state, z = np.empty(d, np.float32), np.empty((2, d), np.float32), np.empty(rank, np.float32)
    for c in range(first, last):
        n, r, own = counts[c], row_counts[c], user[c]
        logits, slopes, seen = all_logits[:r], all_slopes[:r], all_seen[:r]
        own_state[:], moment[:, :r], square[:, :r] = ZERO, ZERO, ZERO
        for j in range(r):
            fixed[:, j] = base[c, j]
            moving[:, j] = low[c, j]
        score_rows(own, proj, z, fixed, moving, logits)
        project_rows(proj, fixed, pull[:, :r])
        step, total = 0, 0.0
        for epoch in range(epochs if n > 0 else 0):
            epoch_order(seed, round, clients[c], epoch, n, order, packed, spare, starts)
            epoch_sum = 0.0
            for start in range(0, n, batch_size):
                slopes[:], seen[:] = ZERO, ZERO
                batch = order[start : min(start + batch_size, n)]
                epoch_sum += batch_slopes(batch, slots[c], labels[c], logits, slopes)
                for sample in batch:
                    seen[slots[c, sample]] += ONE
                user_gradient(own, proj, fixed, moving, slopes, l2, own_gradient)
                # From here on slopes and seen weigh the rows' gradients: sums over samples, or means per row.
                share = ONE / np.float32(len(batch))
                for j in range(r):
                    weight = shrink / (max(seen[j], ONE) * share) if per_row else shrink
                    slopes[j] *= weight
                    seen[j] *= weight * share * TWO * l2
                row_gradients(proj, z, pull, moving, slopes, seen, l2 > ZERO, slope_in)
                step += 1
                if uses_adam:
                    rate, scale = corrections(lr, step)
                    adam_step(own, own_gradient, own_state[0], own_state[1], rate, scale)
                    for k in range(rank):
                        adam_step(moving[k, :r], slope_in[k, :r], moment[k, :r], square[k, :r], rate, scale)
                else:
                    sgd_step(own, own_gradient, np.float32(lr))
                    for k in range(rank):
                        sgd_step(moving[k, :r], slope_in[k, :r], np.float32(lr))
                score_rows(own, proj, z, fixed, moving, logits)
            total, done = end_epoch(losses, c, epoch, n, epoch_sum, total, tol)
            if done:
                break
        for j in range(r):
            low[c, j] = moving[:, j]


@compiled
def score_rows(own: Any, proj: Any, z: Any, fixed: Any, moving: Any, logits: Any) -> None:
    """Set z = projection . user and the logits of all rows."""
    logits[:] = ZERO
    for k in range(len(own)):
        add_scaled(logits, own[k], fixed[k])
    for k in range(len(z)):
        z[k] = inner(proj[k], own)
        add_scaled(logits, z[k], moving[k])


@compiled
def user_gradient(own: Any, proj: Any, fixed: Any, moving: Any, slopes: Any, l2: Any, out: Any) -> None:
    """Gradient of the batch's mean loss in the user vector."""
    for k in range(len(own)):
        out[k] = inner(slopes, fixed[k]) + TWO * l2 * own[k]
    for k in range(len(proj)):
        add_scaled(out, inner(slopes, moving[k]), proj[k])


@compiled
def project_rows(proj: Any, fixed: Any, out: Any) -> None:
    """The part of the L2 term's gradient that never changes: fixed . proj'."""
    out[:] = ZERO
    for k in range(len(proj)):
        for i in range(len(fixed)):
            add_scaled(out[k], proj[k, i], fixed[i])


@compiled
def row_gradients(proj: Any, z: Any, pull: Any, moving: Any, slopes: Any, decay: Any, decays: bool, out: Any) -> None:
    """Gradient in ``moving``: slope * z, and decay * (pull + moving . proj . proj') where there is an L2 term."""
    r = len(slopes)
    for k in range(len(z)):
        row = out[k, :r]
        row[:] = ZERO
        if decays:
            row[:] = pull[k, :r]
            for i in range(len(z)):
                add_scaled(row, inner(proj[k], proj[i]), moving[i])
        for j in range(r):
            row[j] = row[j] * decay[j] + slopes[j] * z[k]


@compiled
def add_scaled(out: Any, factor: Any, values: Any) -> None:
    """Add factor * values, of which only the first ``len(out)`` count."""
    for j in range(len(out)):
        out[j] += factor * values[j]


@compiled
def inner(a: Any, b: Any) -> Any:
    """Sum of products over ``len(a)``."""
    total = ZERO
    for j in range(len(a)):
        total += a[j] * b[j]
    return total


@compiled
def sgd_step(values: Any, gradient: Any, lr: Any) -> None:
    """A gradient step."""
    for j in range(len(values)):
        values[j] -= lr * gradient[j]


@compiled
def adam_step(values: Any, gradient: Any, moment: Any, square: Any, rate: Any, scale: Any) -> None:
    """Adam's step on a row of numbers."""
    for j in range(len(values)):
        values[j], moment[j], square[j] = adam(values[j], gradient[j], moment[j], square[j], rate, scale)
