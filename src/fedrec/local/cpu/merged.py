"""A method's own loss on merged rows, compiled: the twin of ``fedrec.local.merged``, and of ``fedrec.local.pair_network``.

What a client scores with is brought to one form: a perceptron on the columns of a row, its *scorer*, plus a weighted sum of the
row's first columns. A linear unit is a perceptron without hidden layers; a network on a user vector beside a row is one whose
first biases hold the user's part. A batch lies in memory as in ``adapter``: a column for every sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedrec.compute.cpu import compiled, for_clients
from fedrec.local.cpu.adapter import (
    adam,
    backward,
    correlate,
    forward,
    gradients,
    layers,
    load,
    padded,
    scratch,
)
from fedrec.local.cpu.scorer import LINEAR, NETWORK, read_scorer, scorer_of, spread
from fedrec.local.cpu.shared import ONE, TWO, ZERO, arrays, end_epoch, pack
from fedrec.local.fit import Params, Schedule, Step
from fedrec.local.linear import AdditiveTables
from fedrec.sampling.cpu_streams import epoch_order, order_scratch
from fedrec.sampling.samples import Samples

ON_ADAPTER, JOINT, ON_UNIT, ON_ROWS, ADDITIVE = 0, 1, 2, 3, 4
"""What a step moves: the adapter, everything by Adam, the linear unit, the rows, or everything of additive tables."""


@compiled
def gather(rows: Any, slots: Any, out: Any, n: int) -> None:
    """Put the rows at ``slots`` into the columns of ``out``."""
    d = rows.shape[1]
    for s in range(n):
        row = rows[slots[s]]
        for k in range(d):
            out[k, s] = row[k]


@compiled
def merge(units: Any, d: int, out: Any, n: int) -> None:
    """Merged rows, from the adapter's inputs and its weight."""
    rho = units[-1]
    for k in range(d):
        mine, added, target = units[k], units[d + k], out[k]
        for s in range(n):
            target[s] = mine[s] + rho[s] * added[s]


@compiled
def weight_slopes(units: Any, d: int, pull: Any, out: Any, n: int) -> None:
    """Slope of the loss in the adapter's output before its sigmoid, from that in the merged rows."""
    out[:n] = ZERO
    for k in range(d):
        added, by = units[d + k], pull[k]
        for s in range(n):
            out[s] += added[s] * by[s]
    rho = units[-1]
    for s in range(n):
        out[s] *= rho[s] * (ONE - rho[s])


@compiled
def pull_local(units: Any, unit_slopes: Any, pull: Any, d: int, n: int) -> None:
    """Turn the slope in merged rows into that in local ones, which enter the score and both halves of the adapter's input."""
    rho = units[-1]
    for k in range(d):
        near, away, by = unit_slopes[k], unit_slopes[d + k], pull[k]
        for s in range(n):
            by[s] = (ONE - rho[s]) * by[s] + near[s] - away[s]


@compiled
def fade_rows(rows: Any, others: Any, count: int, left: Any) -> None:
    """Weight decay of the first rows of two tables."""
    for j in range(count):
        for k in range(rows.shape[1]):
            rows[j, k] *= left
            others[j, k] *= left


@compiled
def score(scorer: Any, widths: Any, product: Any, net: Any, logits: Any, n: int) -> None:
    """Logits of the rows in the first rows of ``net``, whose other rows become the scorer's units."""
    a = len(product)
    layers(scorer, widths, net[a:], n)
    last = net[-1]
    for s in range(n):
        logits[s] = last[s]
    for k in range(a):
        weight, column = product[k], net[k]
        for s in range(n):
            logits[s] += weight * column[s]


@compiled
def slopes_of(logits: Any, labels: Any, size: int, n: int, out: Any, want_loss: bool) -> float:
    """Slope of the mean loss in every logit (0 if padded); returns the summed loss."""
    share = ONE / np.float32(size)
    for s in range(n):
        sign = ONE - TWO * labels[s]
        out[s] = sign * share / (ONE + np.exp(-sign * logits[s]))
    out[size:n] = ZERO
    loss = 0.0
    if want_loss:
        for s in range(size):
            wrong = (ONE - TWO * labels[s]) * logits[s]
            loss += max(wrong, ZERO) + np.log1p(np.exp(-abs(wrong)))
    return loss


@compiled
def pull_back(scorer: Any, widths: Any, product: Any, net: Any, pull: Any, slope: Any, n: int) -> None:
    """Carry the slopes of the logits to the units and to the rows: ``pull`` lies as ``net``."""
    a = len(product)
    pull[-1, :n] = slope[:n]
    backward(scorer, widths, net[a:], pull[a:], n, True)
    for k in range(a):
        weight, target = product[k], pull[k]
        for s in range(n):
            target[s] = weight * slope[s]


@compiled
def penalise(merged: Any, other: Any, forces: Any, size: int, pull: Any, other_pull: Any, want_loss: bool) -> float:
    """Add what drives the tables apart and the merged rows to 0 to the pulls on them; returns its summed loss."""
    apart, l1, l2 = forces
    d = len(other)
    share = ONE / np.float32(size * d)
    far, near, flat = np.float32(2 * apart) * share, np.float32(l1) * share, np.float32(2 * l2) * share
    distance = absolute = square = 0.0
    for k in range(d):
        for s in range(size):
            z, away = merged[k, s], other[k, s] - merged[k, s]
            other_pull[k, s] = pull[k, s] - far * away
            pull[k, s] += far * away + near * np.sign(z) + flat * z
            if want_loss:
                distance += away * away
                absolute += abs(z)
                square += z * z
    loss: float = (l1 * absolute + l2 * square - apart * distance) / d
    return loss


@compiled
def drop(rows: Any, slots: Any, pull: Any, size: int, rate: Any) -> None:
    """Add ``rate`` times each column of ``pull`` to the row its sample looked up."""
    d = rows.shape[1]
    for s in range(size):
        row = rows[slots[s]]
        for k in range(d):
            row[k] += rate * pull[k, s]


@compiled
def train_range(first: int, last: int, model: Any, samples: Any, stream: Any, options: Any, losses: Any) -> None:
    """Train clients first..last-1; a batch is one step of every kind in ``stages``, each of which looks again."""
    theta, widths, local, server, personal, kind, scorer_widths, n_product, own, network, shrunk = model
    clients, slots, labels, counts, row_counts = samples
    seed, round = stream
    epochs, batch_size, tol, stages, rates, decays, forces = options
    adapter_rate, own_rate, row_rate = rates
    rate_decay, weight_decay, network_decay = decays
    d, most, merges, additive = local.shape[2], slots.shape[1], theta.shape[1] > 0, personal.shape[1] > 0
    widest = min(batch_size, most)
    n_units, n_net = np.sum(widths), n_product + np.sum(scorer_widths)
    units, unit_slopes = scratch(n_units, widest), scratch(n_units, widest)
    net, pull = scratch(n_net, widest), scratch(n_net, widest)
    merged, other = scratch(d if additive else 0, widest), scratch(d if additive else 0, widest)
    other_pull = scratch(d if additive else 0, widest)
    columns = net.shape[1]
    logits, label, slope = (
        np.zeros(columns, np.float32),
        np.zeros(columns, np.float32),
        np.zeros((1, columns), np.float32),
    )
    chosen = np.zeros(columns, np.int64)
    size_of_scorer = 0
    for layer in range(len(scorer_widths) - 1):
        size_of_scorer += scorer_widths[layer + 1] * (scorer_widths[layer] + 1)
    scorer, scorer_grad = np.zeros(size_of_scorer, np.float32), np.zeros(size_of_scorer, np.float32)
    product, product_grad = np.zeros(n_product, np.float32), np.zeros((1, n_product), np.float32)
    joint = False
    for stage in stages:
        joint = joint or stage == JOINT
    theta_state, own_state = np.zeros((3, theta.shape[1]), np.float32), np.zeros((3, own.shape[1]), np.float32)
    network_state = np.zeros((3, network.shape[1]), np.float32)
    row_state = np.zeros((3, local.shape[1] * d if joint else 0), np.float32)
    order, packed, spare, starts = order_scratch(most)
    for c in range(first, last):
        block, r = local[c], row_counts[c]
        cells = r * d if joint else 0
        theta_state[:], own_state[:], network_state[:], row_state[:, :cells] = ZERO, ZERO, ZERO, ZERO
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
                    chosen[s], label[s] = slots[c, sample], labels[c, sample]
                if merges:
                    load(block, server[c], chosen, units, n)
                if additive:
                    gather(personal[c], chosen, other, n)
                loss = 0.0
                for place in range(len(stages)):
                    stage = stages[place]
                    if merges:
                        forward(theta[c], widths, units, n)
                        merge(units, d, net, n)
                    else:
                        gather(block, chosen, net, n)
                    for k in range(d if additive else 0):
                        for s in range(n):
                            merged[k, s] = net[k, s]
                            net[k, s] += other[k, s]
                    read_scorer(kind, own[c], network[c], scorer_widths, scorer, product)
                    score(scorer, scorer_widths, product, net, logits, n)
                    reported = want_loss and place == len(stages) - 1
                    loss = slopes_of(logits, label, size, n, slope[0], reported)
                    if reported and network_decay > 0:
                        square = 0.0
                        for k in range(network.shape[1]):
                            square += network[c, k] * network[c, k]
                        loss += 0.5 * network_decay * square * size
                    if stage != ON_UNIT:
                        pull_back(scorer, scorer_widths, product, net, pull, slope[0], n)
                    if additive:
                        loss += penalise(merged, other, forces, size, pull, other_pull, reported)
                    if stage == ON_ADAPTER:
                        weight_slopes(units, d, pull, unit_slopes[-1], n)
                        backward(theta[c], widths, units, unit_slopes, n, False)
                        gradients(widths, units, unit_slopes, theta_state[0], n)
                        adam(theta[c], theta_state, theta.shape[1], adapter_rate, step)
                        continue
                    if stage != ON_ROWS:
                        pull[-1, :n] = slope[0, :n]
                        gradients(scorer_widths, net[n_product:], pull[n_product:], scorer_grad, n)
                        correlate(slope, net[:n_product], product_grad, n)
                    if merges and stage != ON_UNIT:
                        weight_slopes(units, d, pull, unit_slopes[-1], n)
                        backward(theta[c], widths, units, unit_slopes, n, True)
                        pull_local(units, unit_slopes, pull, d, n)
                    if stage == ON_UNIT:
                        for k in range(own.shape[1]):
                            own[c, k] -= np.float32(own_rate) * scorer_grad[k]
                    elif stage == ON_ROWS:
                        drop(block, chosen, pull, size, np.float32(-row_rate))
                    elif stage == ADDITIVE:
                        now = rate_decay ** (step - 1)
                        rate, fade = np.float32(own_rate * now), np.float32(weight_decay)
                        for k in range(own.shape[1]):
                            own[c, k] -= rate * (scorer_grad[k] + fade * own[c, k])
                        move = np.float32(row_rate * now)
                        fade_rows(block, personal[c], r, ONE - move * fade)
                        shrunk[c] *= ONE - move * fade
                        drop(block, chosen, pull, size, -move)
                        drop(personal[c], chosen, other_pull, size, -move)
                    else:
                        grads = own_state[0], network_state[0]
                        spread(own[c], network[c], scorer_widths, scorer_grad, product_grad[0], *grads)
                        if network_decay > 0:
                            for k in range(network.shape[1]):
                                network_state[0, k] += np.float32(network_decay) * network[c, k]
                        drop(row_state[0].reshape((-1, d)), chosen, pull, size, ONE)
                        adam(own[c], own_state, own.shape[1], own_rate, step)
                        adam(network[c], network_state, network.shape[1], own_rate, step)
                        adam(block.reshape(-1), row_state, cells, row_rate, step)
                epoch_loss += loss
            total, done = end_epoch(losses, c, epoch, counts[c], epoch_loss, total, tol)
            if done:
                break


def train(problem: Any, params: Params, samples: Samples, schedule: Schedule, steps: Sequence[Step]) -> Tensor:
    """Train the adapters, and with more steps what the problem trains on merged rows."""
    widths = np.array(problem.adapter.widths, np.int64)
    merging = params["adapter"], widths, params["local"], params["server"]
    rates = [float(rate) for step in steps for name, rate in step.rates.items() if name in ("adapter", "local")]
    return _train(problem.problem, params, merging, [ON_ADAPTER], rates, samples, schedule, steps)


def train_network(problem: Any, params: Params, samples: Samples, schedule: Schedule, steps: Sequence[Step]) -> Tensor:
    """Train user vectors, networks and the touched rows jointly, without merging."""
    block = params["block"]
    merging = block.new_zeros(len(block), 0), np.zeros(0, np.int64), block, block
    return _train(problem, params, merging, [], [0.0, float(steps[0].rate)], samples, schedule, steps)


def _train(
    problem: Any,
    params: Params,
    merging: tuple[Tensor, Any, Tensor, Tensor],
    before: list[int],
    rates: list[float],
    samples: Samples,
    schedule: Schedule,
    steps: Sequence[Step],
) -> Tensor:
    """Steps of the kinds ``before``, then the problem's own; ``rates`` are those of the adapter and, if they move, of rows."""
    theta, widths, local, server = merging
    own = steps[len(before) :]
    losses, nothing = torch.zeros(len(local)), local.new_zeros(len(local), 0)
    form = scorer_of(problem, params, local.shape[2])
    additive = isinstance(problem, AdditiveTables)
    forces = (problem.apart, problem.l1, problem.l2) if additive else (0.0, 0.0, 0.0)
    personal, shrunk = (params["personal"], params["shrunk"]) if additive else (local[:, :0].contiguous(), losses)
    kinds = {NETWORK: [JOINT], LINEAR: [ADDITIVE] if additive else [ON_UNIT, ON_ROWS]}[form.kind]
    own_rate = float(own[0].rates[form.own_name]) if own else 0.0
    decays = (own[0].lr_decay, own[0].weight_decay) if own else (1.0, 0.0)
    options = (
        schedule.epochs, schedule.batch_size, float(schedule.early_stop_tol),
        np.array(before + kinds * bool(own), np.int64),
        (rates[0], own_rate, rates[-1]), (*map(float, decays), float(form.decay)), tuple(map(float, forces)),
    )  # fmt: skip
    network = nothing if form.network is None else form.network
    model = (
        *arrays(theta), widths, *arrays(local, server, personal), form.kind, form.widths, form.product,
        *arrays(form.own, network, shrunk),
    )  # fmt: skip
    inputs = model, *pack(samples), options, losses.numpy()
    costs = samples.counts.numpy() * schedule.epochs
    for_clients(lambda first, last: train_range(first, last, *inputs), costs, unit=100)
    return losses
