"""Merging adapters, compiled: the twin of ``fedrec.local.adapters``.

An adapter is a small multi-layer perceptron, one per client. A batch lies in memory as one row per unit
(inputs first, the single output last) and one column per sample, so every inner loop runs over samples and
fills the vector registers whatever the number and the widths of the layers. There is a column for every
sample, not for every distinct row: batches of 256 on MovieLens-100K have only 5 % fewer distinct rows than
samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedrec.compute.cpu import compiled, for_clients
from fedrec.local.cpu.shared import ONE, TWO, ZERO, arrays, corrections, end_epoch, pack
from fedrec.local.fit import Params, Schedule, Step
from fedrec.sampling.cpu_streams import epoch_order, order_scratch
from fedrec.sampling.samples import Samples

LANES = 32  # columns are padded to whole vectors: the compiler does what is left over one by one


@compiled
def padded(n: int) -> int:
    """The next number of columns that fills whole vectors."""
    return (n + LANES - 1) // LANES * LANES


@compiled
def scratch(rows: int, columns: int) -> Any:
    """Zeros for ``columns`` padded samples; the odd stride keeps the rows out of each other's cache sets."""
    return np.zeros((rows, padded(columns) + LANES // 2), np.float32)


@compiled
def affine(weight: Any, bias: Any, x: Any, out: Any, n: int) -> None:
    """``out = weight @ x + bias`` in the first n columns."""
    n_out, n_in = weight.shape
    whole = n_in - n_in % 8  # eight inputs at a time: one read and write of ``out`` for eight products
    for j in range(n_out):
        target = out[j]
        start = bias[j]
        for s in range(n):
            target[s] = start
        for k in range(0, whole, 8):
            w0, w1, w2, w3 = weight[j, k], weight[j, k + 1], weight[j, k + 2], weight[j, k + 3]
            w4, w5, w6, w7 = weight[j, k + 4], weight[j, k + 5], weight[j, k + 6], weight[j, k + 7]
            x0, x1, x2, x3 = x[k], x[k + 1], x[k + 2], x[k + 3]
            x4, x5, x6, x7 = x[k + 4], x[k + 5], x[k + 6], x[k + 7]
            for s in range(n):
                low = w0 * x0[s] + w1 * x1[s] + w2 * x2[s] + w3 * x3[s]
                target[s] += low + w4 * x4[s] + w5 * x5[s] + w6 * x6[s] + w7 * x7[s]
        for k in range(whole, n_in):
            w0, x0 = weight[j, k], x[k]
            for s in range(n):
                target[s] += w0 * x0[s]


@compiled
def correlate(slopes: Any, x: Any, out: Any, n: int) -> None:
    """``out = slopes @ x.T`` over the first n columns: the gradient of a layer's weights."""
    n_out, n_in = out.shape
    whole = n_in - n_in % 8
    for j in range(n_out):
        slope = slopes[j]
        for k in range(0, whole, 8):
            x0, x1, x2, x3 = x[k], x[k + 1], x[k + 2], x[k + 3]
            x4, x5, x6, x7 = x[k + 4], x[k + 5], x[k + 6], x[k + 7]
            g0 = g1 = g2 = g3 = g4 = g5 = g6 = g7 = ZERO
            for s in range(n):
                by = slope[s]
                g0, g1, g2, g3 = g0 + by * x0[s], g1 + by * x1[s], g2 + by * x2[s], g3 + by * x3[s]
                g4, g5, g6, g7 = g4 + by * x4[s], g5 + by * x5[s], g6 + by * x6[s], g7 + by * x7[s]
            out[j, k], out[j, k + 1], out[j, k + 2], out[j, k + 3] = g0, g1, g2, g3
            out[j, k + 4], out[j, k + 5], out[j, k + 6], out[j, k + 7] = g4, g5, g6, g7
        for k in range(whole, n_in):
            x0 = x[k]
            g0 = ZERO
            for s in range(n):
                g0 += slope[s] * x0[s]
            out[j, k] = g0


@compiled
def layers(theta: Any, widths: Any, units: Any, n: int) -> None:
    """Fill the rows of ``units`` behind the inputs: hidden units, and the output as it is."""
    row, at, last = 0, 0, len(widths) - 2
    for layer in range(last + 1):
        n_in, n_out = widths[layer], widths[layer + 1]
        weight = theta[at : at + n_in * n_out].reshape((n_out, n_in))
        at += n_in * n_out
        below, row = units[row : row + n_in], row + n_in
        affine(weight, theta[at : at + n_out], below, units[row : row + n_out], n)
        at += n_out
        if layer < last:
            for j in range(row, row + n_out):
                unit = units[j]
                for s in range(n):
                    unit[s] *= np.float32(unit[s] > ZERO)  # a product vectorises, max() does not


@compiled
def forward(theta: Any, widths: Any, units: Any, n: int) -> None:
    """Fill the rows of ``units`` behind the inputs; the last row becomes rho."""
    layers(theta, widths, units, n)
    unit = units[np.sum(widths) - 1]
    for s in range(n):
        unit[s] = ONE / (ONE + np.exp(-unit[s]))


@compiled
def backward(theta: Any, widths: Any, units: Any, slopes: Any, n: int, to_inputs: bool) -> None:
    """Carry the slope of the output (before its sigmoid) to the hidden units and, if asked, the inputs."""
    row, at = np.sum(widths) - 1, len(theta)
    for layer in range(len(widths) - 2, -1 if to_inputs else 0, -1):
        n_in, n_out = widths[layer], widths[layer + 1]
        at -= n_out * (n_in + 1)
        weight = theta[at : at + n_in * n_out].reshape((n_out, n_in))
        affine(weight.T, np.zeros(n_in, np.float32), slopes[row : row + n_out], slopes[row - n_in : row], n)
        row -= n_in
        if layer > 0:
            for j in range(row, row + n_in):
                unit, slope = units[j], slopes[j]
                for s in range(n):
                    slope[s] *= np.float32(unit[s] > ZERO)


@compiled
def gradients(widths: Any, units: Any, slopes: Any, grad: Any, n: int) -> None:
    """Gradient of all weights and biases, laid out like theta."""
    row, at = 0, 0
    for layer in range(len(widths) - 1):
        n_in, n_out = widths[layer], widths[layer + 1]
        above = slopes[row + n_in : row + n_in + n_out]
        correlate(above, units[row : row + n_in], grad[at : at + n_in * n_out].reshape((n_out, n_in)), n)
        at += n_in * n_out
        for j in range(n_out):
            slope = above[j]
            total = ZERO
            for s in range(n):
                total += slope[s]
            grad[at + j] = total
        at += n_out
        row += n_in


@compiled
def load(local: Any, server: Any, slots: Any, units: Any, n: int) -> None:
    """Put the rows at ``slots`` into the inputs: the local rows and what the server's rows add to them."""
    d = local.shape[1]
    for s in range(n):
        mine, other = local[slots[s]], server[slots[s]]
        for k in range(d):
            units[k, s] = mine[k]
            units[d + k, s] = other[k] - mine[k]


@compiled
def adam(value: Any, state: Any, n: int, rate: Any, step: int) -> None:
    """One step of Adam on n elements; ``state`` holds the gradient, which is cleared, and both moments."""
    # Not the shared step on one number, whose mean rounds differently: published results rest on these bits.
    grad, mean, square = state[0], state[1], state[2]
    scale, root = corrections(rate, step)
    for i in range(n):
        g = grad[i]
        m = np.float32(0.9) * mean[i] + np.float32(0.1) * g
        v = np.float32(0.999) * square[i] + np.float32(0.001) * g * g
        mean[i], square[i], grad[i] = m, v, ZERO
        value[i] -= scale * m / (np.sqrt(v) * root + np.float32(1e-8))


@compiled
def residuals(rho: Any, base: Any, gain: Any, labels: Any, size: int, n: int, out: Any, want_loss: bool) -> float:
    """Slope of the mean loss in every logit ``base + rho * gain`` (0 if padded); returns the summed loss."""
    share = ONE / np.float32(size)
    for s in range(n):
        sign = ONE - TWO * labels[s]  # sigmoid(logit) - label, without its rounding where that is close to 0
        out[s] = sign * share / (ONE + np.exp(-sign * (base[s] + rho[s] * gain[s])))
    out[size:n] = ZERO
    loss = 0.0
    if want_loss:
        for s in range(size):
            wrong = (ONE - TWO * labels[s]) * (base[s] + rho[s] * gain[s])
            loss += max(wrong, ZERO) + np.log1p(np.exp(-abs(wrong)))
    return loss


@compiled
def output_slope(slope: Any, gain: Any, rho: Any, out: Any, n: int) -> None:
    """Slope of the loss in the adapter's output before its sigmoid."""
    for s in range(n):
        out[s] = slope[s] * gain[s] * rho[s] * (ONE - rho[s])


@compiled
def pooled_slope(slope: Any, gain: Any, size: int, rho: Any, out: Any, n: int) -> None:
    """The same where the mean of n outputs is the weight of all samples."""
    pull = np.sum(slope[:size] * gain[:size]) / np.float32(n)
    for s in range(n):
        out[s] = pull * rho[s] * (ONE - rho[s])


@compiled
def embedding_gradients(user: Any, batch: Any, slope: Any, scaled: Any, user_grad: Any, row_grad: Any) -> None:
    """Gradients of the user vector [1, d] (set) and of the local rows (added); ``scaled`` is scratch."""
    units, slopes, slots, size, n = batch
    dim, rho = user.shape[1], units[-1]
    for s in range(n):
        scaled[0, s] = slope[0, s] * rho[s]
    by_server = np.empty_like(user)
    correlate(slope, units[:dim], user_grad, n)
    correlate(scaled, units[dim : 2 * dim], by_server, n)
    user_grad += by_server
    for s in range(size):
        target = row_grad[slots[s]]
        keep = slope[0, s] - scaled[0, s]
        for k in range(dim):  # a local row enters the score itself and both halves of the adapter's input
            target[k] += keep * user[0, k] + slopes[k, s] - slopes[dim + k, s]


@compiled
def weights_range(first: int, last: int, theta: Any, widths: Any, local: Any, server: Any, rho: Any) -> None:
    """Fill ``rho[first:last]``, one weight per row; ``server`` has a table per client or one for all."""
    rows = local.shape[1]
    tile = max(1, min(rows, 256))  # few enough that the units of a tile stay in the cache
    units = scratch(np.sum(widths), tile)
    slots = np.zeros(units.shape[1], np.int64)
    for c in range(first, last):
        table = server[min(c, len(server) - 1)]
        for start in range(0, rows, tile):
            size = min(tile, rows - start)
            for s in range(padded(size)):
                slots[s] = min(start + s, rows - 1)
            load(local[c], table, slots, units, padded(size))
            forward(theta[c], widths, units, padded(size))
            rho[c, start : start + size] = units[-1, :size]


@compiled
def train_range(first: int, last: int, model: Any, samples: Any, stream: Any, options: Any, losses: Any) -> None:
    """Train clients first..last-1: a batch is a step on theta and, if ``joint``, one on user and rows.

    A pool that has rows gives all rows of a client one weight: the mean of the adapter over the pool.
    """
    theta, widths, user, local, server, pool_local, pool_server = model
    clients, slots, labels, counts, row_counts = samples
    seed, round = stream
    epochs, batch_size, adapter_lr, lr, joint, tol = options
    dim, n_units, most = user.shape[1], np.sum(widths), slots.shape[1]
    units, slopes = scratch(n_units, min(batch_size, most)), scratch(n_units, min(batch_size, most))
    parts = np.zeros((5, 1, units.shape[1]), np.float32)
    base, gain, slope, scaled, label = parts[0], parts[1], parts[2], parts[3], parts[4]
    chosen = np.zeros(units.shape[1], np.int64)
    pool_rows = pool_local.shape[1]
    pooled, stages = pool_rows > 0, 2 if joint else 1
    net, net_slopes = units, slopes  # where the adapter runs: on the batch, or on the pool
    if pooled:
        net, net_slopes = scratch(n_units, pool_rows), scratch(n_units, pool_rows)
    pool_slots = np.minimum(np.arange(padded(pool_rows)), pool_rows - 1)
    order, packed, spare, starts = order_scratch(most)
    # Gradient and Adam's two moments of every parameter.
    theta_state, user_state = np.zeros((3, theta.shape[1]), np.float32), np.zeros((3, dim), np.float32)
    row_state = np.zeros((3, local.shape[1] * dim if joint else 0), np.float32)
    no_bias = np.zeros(1, np.float32)
    for c in range(first, last):
        own, vector, block = theta[c], user[c : c + 1], local[c]
        cells = row_counts[c] * dim if joint else 0
        theta_state[:], user_state[:], row_state[:, :cells] = ZERO, ZERO, ZERO
        if pooled:
            load(pool_local[c], pool_server[c], pool_slots, net, len(pool_slots))
        step, total = 0, 0.0
        for epoch in range(epochs if counts[c] > 0 else 0):
            epoch_order(seed, round, clients[c], epoch, counts[c], order, packed, spare, starts)
            want_loss = tol > 0 or epoch == epochs - 1
            epoch_loss = 0.0
            for start in range(0, counts[c], batch_size):
                size = min(batch_size, counts[c] - start)
                n = padded(size)
                step += 1
                for s in range(n):
                    sample = order[start + min(s, size - 1)]
                    chosen[s], label[0, s] = slots[c, sample], labels[c, sample]
                load(block, server[c], chosen, units, n)
                affine(vector, no_bias, units[:dim], base, n)
                affine(vector, no_bias, units[dim : 2 * dim], gain, n)
                columns = padded(pool_rows) if pooled else n
                loss = 0.0
                for stage in range(stages):
                    forward(own, widths, net, columns)
                    if pooled:
                        units[-1, :n] = np.mean(net[-1, :pool_rows])
                    reported = want_loss and stage == stages - 1
                    loss = residuals(units[-1], base[0], gain[0], label[0], size, n, slope[0], reported)
                    if pooled:
                        pooled_slope(slope[0], gain[0], size, net[-1], net_slopes[-1], pool_rows)
                    else:
                        output_slope(slope[0], gain[0], net[-1], net_slopes[-1], n)
                    backward(own, widths, net, net_slopes, columns, stage == 1)
                    if stage == 0:
                        gradients(widths, net, net_slopes, theta_state[0], columns)
                        adam(own, theta_state, len(own), adapter_lr, step)
                    else:
                        batch = (units, slopes, chosen, size, n)
                        row_grad = row_state[0].reshape((-1, dim))
                        embedding_gradients(vector, batch, slope, scaled, user_state[:1], row_grad)
                        adam(user[c], user_state, dim, lr, step)
                        adam(block.reshape(-1), row_state, cells, lr, step)
                epoch_loss += loss
            total, done = end_epoch(losses, c, epoch, counts[c], epoch_loss, total, tol)
            if done:
                break


def row_weights(problem: Any, theta: Tensor, local: Tensor, server: Tensor) -> Tensor:
    """Weight rho [c, R] of every row of ``local`` [c, R, d] against ``server`` [c, R, d] or [R, d]."""
    rho = local.new_empty(local.shape[:2])
    own, mine, theirs, out = arrays(theta, local, server if server.dim() == 3 else server[None], rho)
    widths = np.array(problem.widths, np.int64)
    costs = np.full(len(rho), rho.shape[1], np.int64)
    for_clients(lambda first, last: weights_range(first, last, own, widths, mine, theirs, out), costs, unit=50)
    return rho


def train(problem: Any, params: Params, samples: Samples, schedule: Schedule, steps: Sequence[Step]) -> Tensor:
    """Train the adapter; with two steps every batch also moves the user vector and the local rows."""
    theta, user, local, server = (params[name] for name in ("adapter", "user", "local", "server"))
    pool = params.get("pool_local", local[:, :0]), params.get("pool_server", server[:, :0])
    losses = torch.zeros(len(theta))
    own, *rest = arrays(theta, user, local, server, *(rows.contiguous() for rows in pool))
    model = own, np.array(problem.widths, np.int64), *rest
    adapter_step, *other = steps
    rates = float(adapter_step.rate), float(other[0].rate if other else 0)
    options = schedule.epochs, schedule.batch_size, *rates, bool(other), float(schedule.early_stop_tol)
    inputs = model, *pack(samples), options, losses.numpy()
    costs = samples.counts.numpy() * schedule.epochs
    for_clients(lambda first, last: train_range(first, last, *inputs), costs, unit=100)
    return losses
