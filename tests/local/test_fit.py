"""Local training against the plainest possible loop: torch.optim on one client's full, dense item table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from fedrec.data.training import Ragged, TrainingView
from fedrec.local.factorisation import MatrixFactorisation
from fedrec.local.fit import Batch, Optimizer, Params, Schedule, Step, fit, lookup, put_rows, take_rows
from fedrec.sampling import streams
from fedrec.sampling.negatives import Sampler
from fedrec.sampling.samples import Samples

ITEMS, DIM, BATCH = 30, 5, 16
SIZES = [12, 9, 9, 6, 3, 1, 0]  # positives per client: 60 samples to none, in batches of 16


def make_samples(sizes: list[int] = SIZES, clients: list[int] | None = None, negatives: int = 4) -> Samples:
    rng = np.random.default_rng(0)
    owners = np.repeat(np.arange(len(sizes)), sizes)
    chosen = [np.sort(rng.choice(ITEMS, size, replace=False)) for size in sizes]
    lists = Ragged.build(owners, np.concatenate(chosen), len(sizes))
    who = torch.tensor(range(len(sizes)) if clients is None else clients)
    return Sampler(TrainingView(len(sizes), ITEMS, lists, lists)).draw(who, negatives=negatives, seed=3, round=2)


def start(clients: int, std: float = 0.5) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(1)
    return std * torch.randn(clients, DIM, generator=rng), std * torch.randn(ITEMS, DIM, generator=rng)


mf_loss = MatrixFactorisation().loss


def train(
    how: str,
    user: Tensor,
    block: Tensor,
    samples: Samples,
    schedule: Schedule,
    lr: float,
    optimizer: Optimizer = "adam",
) -> Tensor:
    """Train by the reference, or by the problem's entry, which takes the compiled twin."""
    params, steps = {"user": user, "block": block}, [Step(("user", "block"), lr, optimizer)]
    if how == "fit":
        return fit(params, mf_loss, samples, schedule, steps)
    return MatrixFactorisation().train(params, samples, schedule, steps)


def batches(samples: Samples, c: int, epoch: int, size: int = BATCH) -> list[Tensor]:
    """Sample numbers of every batch of one client in one epoch."""
    n = int(samples.counts[c])
    order = streams.sorted_orders(
        samples.seed, samples.round, samples.clients[c : c + 1], epoch, samples.counts[c : c + 1], n
    )
    return list(order[0].split(size)) if n else []


def plain_loop(
    user: Tensor,
    table: Tensor,
    samples: Samples,
    c: int,
    optimizer: str,
    epochs: int,
    tol: float = 0.0,
    **options: float,
) -> tuple[Tensor, Tensor, float, int]:
    """What one device would do: torch.optim on its user vector and the whole table; also the last loss and epoch."""
    user, table = user.clone().requires_grad_(), table.clone().requires_grad_()
    decay = options.pop("lr_decay", 1.0)
    kind = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[optimizer]
    optim = kind([user, table], **options)
    seen, before, mean, epoch = [], 0.0, 0.0, 0
    for epoch in range(epochs):
        epoch_losses = []
        for chosen in batches(samples, c, epoch):
            logits = table[samples.items[c, chosen].long()] @ user
            loss = binary_cross_entropy_with_logits(logits, samples.labels[c, chosen])
            optim.zero_grad()
            loss.backward()
            optim.step()
            optim.param_groups[0]["lr"] *= decay
            epoch_losses += [loss.item()] * len(chosen)
        seen += epoch_losses
        mean = float(np.mean(epoch_losses)) if epoch_losses else 0.0
        now = float(np.mean(seen)) if seen else 0.0
        if epoch > 0 and abs(now - before) / abs(before + 1e-5) < tol:
            break
        before = now
    return user.detach(), table.detach(), mean, epoch


def full_tables(table: Tensor, samples: Samples, block: Tensor) -> Tensor:
    out = table.expand(len(block), -1, -1).clone()
    put_rows(out, samples, block)
    return out


def close(a: Tensor, b: Tensor, tol: float = 2e-5) -> bool:
    return torch.allclose(a, b, rtol=0, atol=tol)


@pytest.mark.parametrize("tol", [0.0, 0.05])
@pytest.mark.parametrize(("optimizer", "lr"), [("adam", 0.05), ("sgd", 2.0)])
@pytest.mark.parametrize("how", ["fit", "kernel"])
def test_training_equals_torch_optim_on_the_dense_table(how, optimizer, lr, tol):
    samples = make_samples()
    user, table = start(len(SIZES))
    trained, block = user.clone(), take_rows(table, samples)
    losses = train(how, trained, block, samples, Schedule(8, BATCH, tol), lr, optimizer)
    tables = full_tables(table, samples, block)
    ends = set()
    for c in range(len(SIZES)):
        expected_user, expected_table, loss, end = plain_loop(user[c], table, samples, c, optimizer, 8, tol, lr=lr)
        assert close(trained[c], expected_user)
        assert close(tables[c], expected_table)
        assert losses[c].item() == pytest.approx(loss, abs=1e-5)
        ends.add(end)
    assert ends >= {1, 7} if tol else ends == {7}  # clients stop at different epochs, or none does
    assert (trained[:-1] - user[:-1]).abs().max() > 0.1


def test_batches_hold_duplicates_and_short_ends():
    # Guards the tests above: items repeat inside a batch, and last batches are short.
    samples = make_samples()
    cut = batches(samples, 0, 0)
    assert [len(batch) for batch in cut] == [16, 16, 16, 12]
    assert any(len(samples.items[0, batch].unique()) < len(batch) for batch in cut)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_weight_decay_and_lr_decay_on_a_personal_table(optimizer):
    samples = make_samples()
    user, table = start(len(SIZES))
    params = {"user": user.clone(), "table": table.expand(len(SIZES), -1, -1).clone()}

    def loss(params: Params, batch: Batch) -> Tensor:
        return batch.bce((lookup(params["table"], batch.items) * params["user"][:, None]).sum(2))

    options = {"weight_decay": 0.02, "lr_decay": 0.9}
    step = Step(("user", "table"), 0.1, optimizer, **options)
    fit(params, loss, samples, Schedule(3, BATCH), [step])
    for c in range(len(SIZES)):
        expected_user, expected_table, *_ = plain_loop(user[c], table, samples, c, optimizer, 3, lr=0.1, **options)
        assert close(params["user"][c], expected_user)
        assert close(params["table"][c], expected_table)


def test_steps_run_in_sequence_each_with_a_fresh_forward():
    samples = make_samples()
    user, table = start(len(SIZES))
    params = {"user": user.clone(), "block": take_rows(table, samples)}
    steps = [Step(("user",), 0.1, "sgd"), Step(("block",), {"block": 3.0}, "sgd")]
    losses = fit(params, mf_loss, samples, Schedule(2, BATCH), steps)
    tables = full_tables(table, samples, params["block"])
    for c in range(len(SIZES)):
        vector, rows, seen = user[c].clone(), table.clone(), 0.0
        for epoch in range(2):
            seen = 0.0
            for chosen in batches(samples, c, epoch):
                items, labels = samples.items[c, chosen].long(), samples.labels[c, chosen]
                residual = (torch.sigmoid(rows[items] @ vector) - labels) / len(chosen)
                vector = vector - 0.1 * residual @ rows[items]
                logits = rows[items] @ vector
                seen += binary_cross_entropy_with_logits(logits, labels, reduction="sum").item()
                residual = (torch.sigmoid(logits) - labels) / len(chosen)
                rows = rows.index_add(0, items, -3.0 * residual[:, None] * vector)
        assert close(params["user"][c], vector)
        assert close(tables[c], rows)
        assert losses[c].item() == pytest.approx(seen / max(int(samples.counts[c]), 1), abs=1e-5)


def test_parameters_without_a_step_do_not_move():
    samples = make_samples()
    user, table = start(len(SIZES))
    params = {"user": user.clone(), "block": take_rows(table, samples)}
    fit(params, mf_loss, samples, Schedule(1, BATCH), [Step(("user",), 0.1)])
    assert torch.equal(params["block"], take_rows(table, samples))
    assert not torch.equal(params["user"], user)


@pytest.mark.parametrize("tol", [0.0, 0.05])
@pytest.mark.parametrize("how", ["fit", "kernel"])
def test_a_batch_of_clients_equals_batches_of_one_in_any_order(how, tol):
    def run(clients: list[int]) -> tuple[Tensor, Tensor, Tensor]:
        samples = make_samples(clients=clients)
        user, table = start(len(SIZES))
        user, block = user[clients], take_rows(table, samples)
        losses = train(how, user, block, samples, Schedule(5, BATCH, tol), 0.05)
        return user, full_tables(table, samples, block), losses

    everyone = run(list(range(len(SIZES))))
    shuffled = [4, 6, 0, 5, 2, 1, 3]
    for mixed, together in zip(run(shuffled), everyone, strict=True):
        assert close(mixed, together[shuffled], 1e-5)
    for client in range(len(SIZES)):
        for alone, together in zip(run([client]), everyone, strict=True):
            assert close(alone[0], together[client], 1e-5)


@pytest.mark.parametrize("dim", [1, 8, 16, 19])
@pytest.mark.parametrize(("std", "lr"), [(0.01, 0.005), (1.0, 0.1)])
def test_kernel_agrees_with_fit_on_many_clients(dim, std, lr):
    rng = np.random.default_rng(2)
    samples = make_samples(rng.integers(0, 24, 60).tolist())
    generator = torch.Generator().manual_seed(0)
    user = std * torch.randn(60, dim, generator=generator)
    block = take_rows(std * torch.randn(ITEMS, dim, generator=generator), samples)
    fast, slow = (user.clone(), block.clone()), {"user": user.clone(), "block": block.clone()}
    losses = train("kernel", *fast, samples, Schedule(10, 32), lr)
    expected = train("fit", *slow.values(), samples, Schedule(10, 32), lr)
    assert close(losses, expected, 1e-5)
    assert close(fast[0], slow["user"], 1e-4)
    assert close(fast[1], slow["block"], 1e-4)


def test_kernel_does_not_depend_on_threads():
    samples = make_samples([9] * 300)
    results = []
    threads = torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            user, table = start(300)
            block = take_rows(table, samples)
            train("kernel", user, block, samples, Schedule(20, 4), 0.05)
            results.append((user, block))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


def test_loss_of_a_batch_beyond_the_range_of_one_product():
    # 10,000 samples in one batch: the kernel's running product of (1 + e) passes 1e300 several times.
    samples = make_samples([20])
    wide = {name: getattr(samples, name).repeat(1, 100) for name in ("items", "labels", "slots")}
    wide = replace(samples, counts=samples.counts * 100, **wide)
    user, table = start(1, std=0.01)
    block = take_rows(table, wide)
    losses = train("kernel", user.clone(), block.clone(), wide, Schedule(1, 100_000), 0.0, "sgd")
    logits = lookup(block, wide.slots)[0] @ user[0]
    assert losses.item() == pytest.approx(binary_cross_entropy_with_logits(logits, wide.labels[0]).item(), rel=1e-5)


@pytest.mark.parametrize("how", ["fit", "kernel"])
def test_extreme_logits_stay_finite(how):
    samples = make_samples()
    user, table = start(len(SIZES), std=30.0)
    block = take_rows(table, samples)
    losses = train(how, user, block, samples, Schedule(2, BATCH), 0.1)
    assert user.isfinite().all()
    assert block.isfinite().all()
    assert losses.isfinite().all()
    assert losses.max() > 10


def test_doubles_and_views_are_trained_too():
    samples = make_samples()
    user, table = start(len(SIZES))
    double, views = (
        (user.double(), take_rows(table.double(), samples)),
        (user.T.contiguous().T, take_rows(table, samples)),
    )
    plain = (user.clone(), take_rows(table, samples))
    for tensors in (double, views, plain):
        train("kernel", *tensors, samples, Schedule(2, BATCH), 0.05)
    for x, y, z in zip(double, views, plain, strict=True):
        assert close(x.float(), z)
        assert close(y, z)


def test_rows_are_taken_from_shared_and_personal_tables_and_put_back_without_padding():
    samples = make_samples()
    _, table = start(len(SIZES))
    personal = table + torch.arange(len(SIZES))[:, None, None]
    block = take_rows(personal, samples)
    assert torch.equal(take_rows(table, samples)[2], table[samples.rows[2].long()])
    assert torch.equal(block[2], personal[2, samples.rows[2].long()])
    out = personal.clone()
    put_rows(out, samples, torch.full_like(block, 9.0))
    for c in range(len(SIZES)):
        touched = samples.rows[c, : samples.row_counts[c]].long()
        expected = personal[c].clone()
        expected[touched] = 9.0
        assert torch.equal(out[c], expected)
    assert (out[-1] != 9.0).all()  # no samples: its padding names item 0, which must stay


def test_an_empty_cohort_trains_to_nothing():
    samples = make_samples(clients=[])
    user, block = torch.zeros(0, DIM), torch.zeros(0, 0, DIM)
    for how in ("fit", "kernel"):
        assert train(how, user, block, samples, Schedule(2, BATCH), 0.1).shape == (0,)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_trains_the_same():
    samples = make_samples()
    there = replace(
        samples, **{name: value.cuda() for name, value in vars(samples).items() if isinstance(value, Tensor)}
    )
    user, table = start(len(SIZES))
    here, moved = (user.clone(), take_rows(table, samples)), (user.cuda(), take_rows(table.cuda(), there))
    losses = [
        train("kernel", *tensors, s, Schedule(5, BATCH, 0.05), 0.05) for tensors, s in ((here, samples), (moved, there))
    ]
    assert close(losses[0], losses[1].cpu())
    assert close(here[0], moved[0].cpu(), 1e-4)
    assert close(here[1], moved[1].cpu(), 1e-4)
