"""The compiled adapter training against a plain loop: one client, the full dense table, torch.optim.Adam."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, linear

from fedrec.data.training import Ragged, TrainingView
from fedrec.local.adapters import MergingAdapter, adapter_widths
from fedrec.local.fit import Schedule, Step, put_rows, take_rows
from fedrec.sampling import streams
from fedrec.sampling.negatives import Sampler
from fedrec.sampling.samples import Samples

DIM, ITEMS, BATCH = 5, 60, 40
WIDTHS = adapter_widths(DIM)
SIZES = (21, 9, 4, 1)  # positives; with 4 negatives: short last batches, and items repeated in one


def cohort() -> Samples:
    rng = np.random.default_rng(3)
    items = [np.sort(rng.choice(ITEMS, size, replace=False)) for size in SIZES]
    owners = np.repeat(np.arange(len(SIZES)), SIZES)
    positives = Ragged.build(owners, np.concatenate(items), len(SIZES))
    view = TrainingView(len(SIZES), ITEMS, positives, positives)
    return Sampler(view).draw(torch.arange(len(SIZES)), negatives=4, seed=11, round=2)


def state(widths: tuple[int, ...] = WIDTHS) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(5)
    n = len(SIZES)
    keys = streams.keys(1, streams.Purpose.INIT, 0, torch.arange(n))
    return {
        "theta": MergingAdapter(widths).network.draw_each(keys),
        "user": torch.randn(n, DIM, generator=generator),
        "local": torch.randn(n, ITEMS, DIM, generator=generator),
        "server": torch.randn(n, ITEMS, DIM, generator=generator),
    }


def plain_rho(theta: Tensor, widths: tuple[int, ...], local: Tensor, server: Tensor) -> Tensor:
    x, at = torch.cat([local, server - local], 1), 0
    for n_in, n_out in pairwise(widths):
        weight = theta[at : at + n_in * n_out].view(n_out, n_in)
        bias = theta[at + n_in * n_out : at + n_out * (n_in + 1)]
        x, at = linear(x, weight, bias), at + n_out * (n_in + 1)
        x = x.sigmoid() if at == len(theta) else x.relu()
    return x[:, 0]


def plain_loop(
    s: dict[str, Tensor],
    samples: Samples,
    c: int,
    widths: tuple[int, ...],
    epochs: int,
    *,
    lr: float | None,
    tol: float,
    dynamic: bool,
) -> tuple[dict[str, Tensor], float, int]:
    theta, user, local = (s[name][c].clone().requires_grad_() for name in ("theta", "user", "local"))
    server = s["server"][c]
    adapter_optimizer = torch.optim.Adam([theta], 0.03)
    optimizer = torch.optim.Adam([user, local], lr) if lr is not None else None
    n = int(samples.counts[c])

    def loss_of(chosen: Tensor) -> Tensor:
        items = samples.items[c, chosen].long()
        if dynamic:
            rho = plain_rho(theta, widths, local, server).mean().expand(len(items))
        else:
            rho = plain_rho(theta, widths, local[items], server[items])
        rows = local[items] + rho[:, None] * (server[items] - local[items])
        return binary_cross_entropy_with_logits(rows @ user, samples.labels[c, chosen])

    total, last, epoch = 0.0, 0.0, 0
    for epoch in range(epochs):
        order = streams.epoch_orders(
            samples.seed, samples.round, samples.clients[c : c + 1], epoch, samples.counts[c : c + 1], n
        )[0]
        epoch_loss = 0.0
        for start in range(0, n, BATCH):
            chosen = order[start : start + BATCH]
            for stepper in filter(None, (adapter_optimizer, optimizer)):
                stepper.zero_grad()
                for other in (theta, user, local):
                    other.grad = None
                loss = loss_of(chosen)
                loss.backward()
                stepper.step()
            epoch_loss += loss.item() * len(chosen)
        before = total / (n * max(epoch, 1))
        total += epoch_loss
        last = epoch_loss / n
        if epoch and abs(total / (n * (epoch + 1)) - before) / abs(before + 1e-5) < tol:
            break
    trained = {"theta": theta.detach(), "user": user.detach(), "local": local.detach()}
    return trained, last, epoch + 1


def train(
    s: dict[str, Tensor],
    samples: Samples,
    epochs: int,
    *,
    widths: tuple[int, ...] = WIDTHS,
    lr: float | None = None,
    tol: float = 0.0,
    dynamic: bool = False,
) -> tuple[dict[str, Tensor], Tensor]:
    out = {name: value.clone() for name, value in s.items()}
    block, server = take_rows(out["local"], samples), take_rows(out["server"], samples)
    params = {"adapter": out["theta"], "user": out["user"], "local": block, "server": server}
    if dynamic:
        params |= {"pool_local": out["local"], "pool_server": out["server"]}
    steps = [Step(("adapter",), 0.03), *([] if lr is None else [Step(("user", "local"), lr)])]
    losses = MergingAdapter(widths).train(params, samples, Schedule(epochs, BATCH, tol), steps)
    put_rows(out["local"], samples, block)
    return out, losses


@pytest.mark.parametrize("kind", ["adapter", "interleaved", "dynamic"])
@pytest.mark.parametrize("hidden", [(16, 8), (), (7, 9, 3)])
def test_equals_a_plain_loop_over_the_dense_table(kind: str, hidden: tuple[int, ...]) -> None:
    samples, widths = cohort(), adapter_widths(DIM, hidden)
    s = state(widths)
    lr = 0.05 if kind == "interleaved" else None
    got, losses = train(s, samples, 6, widths=widths, lr=lr, dynamic=kind == "dynamic")
    assert (got["theta"] - s["theta"]).abs().max() > 0.1
    for c in range(len(SIZES)):
        want, loss, _ = plain_loop(s, samples, c, widths, 6, lr=lr, tol=0, dynamic=kind == "dynamic")
        for name, value in want.items():
            torch.testing.assert_close(got[name][c], value, atol=3e-4, rtol=1e-3, msg=f"{name} of client {c}")
        assert float(losses[c]) == pytest.approx(loss, rel=1e-3)


@pytest.mark.parametrize("kind", ["adapter", "interleaved"])
def test_stops_early_where_the_plain_loop_does(kind: str) -> None:
    samples, s = cohort(), state()
    lr = 0.05 if kind == "interleaved" else None
    tol = 0.05 if lr else 0.02
    got, losses = train(s, samples, 12, lr=lr, tol=tol)
    epochs = []
    for c in range(len(SIZES)):
        want, loss, ran = plain_loop(s, samples, c, WIDTHS, 12, lr=lr, tol=tol, dynamic=False)
        epochs.append(ran)
        torch.testing.assert_close(got["theta"][c], want["theta"], atol=1e-3, rtol=1e-3)
        assert float(losses[c]) == pytest.approx(loss, rel=1e-3)
    assert 1 < min(epochs) < 12, epochs


@pytest.mark.parametrize("lr", [None, 0.05])
def test_a_batch_of_clients_is_batches_of_one(lr: float | None) -> None:
    samples, s = cohort(), state()
    together, losses = train(s, samples, 3, lr=lr)
    for c in reversed(range(len(SIZES))):
        fields = ("clients", "items", "labels", "slots", "counts", "rows", "row_counts", "positives")
        one = replace(samples, **{name: getattr(samples, name)[c : c + 1] for name in fields})
        alone, loss = train({k: v[c : c + 1] for k, v in s.items()}, one, 3, lr=lr)
        for name in ("theta", "user", "local"):
            assert torch.equal(alone[name][0], together[name][c])
        assert torch.equal(loss[0], losses[c])


def test_only_what_should_move_moves() -> None:
    samples, s = cohort(), state()
    adapters, _ = train(s, samples, 2)
    for name in ("user", "local", "server"):
        assert torch.equal(adapters[name], s[name])
    everything, _ = train(s, samples, 2, lr=0.05)
    assert torch.equal(everything["server"], s["server"])
    touched = torch.zeros(len(SIZES), ITEMS, dtype=torch.bool)
    for c in range(len(SIZES)):
        touched[c, samples.rows[c, : samples.row_counts[c]].long()] = True
    moved = (everything["local"] != s["local"]).all(2)
    assert torch.equal(moved, touched)
