"""The GPU kernels against the CPU's: on a GPU where there is one, else in Triton's interpreter where that is installed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from fedrec.compute import dispatch
from fedrec.data.training import Ragged, TrainingView
from fedrec.federation.store import ClientStore
from fedrec.local import twins
from fedrec.local.adapters import MergingAdapter
from fedrec.local.factorisation import MatrixFactorisation
from fedrec.local.fit import Schedule, Step, put_rows, take_rows
from fedrec.local.problem import LocalProblem
from fedrec.sampling import streams
from fedrec.sampling.negatives import Sampler
from fedrec.sampling.samples import Samples
from triton_here import DEVICE, needs_gpu, needs_triton

WIDTHS = [(10, 16, 8, 1), (32, 7, 3, 1)]


def lists(sizes: tuple[int, ...], items: int, more: int = 0) -> TrainingView:
    rng = np.random.default_rng(3)
    n = len(sizes)
    drawn = [rng.permutation(items)[: size + more] for size in sizes]
    owners = np.arange(n)
    positives = Ragged.build(np.repeat(owners, sizes), np.concatenate([x[: len(x) - more] for x in drawn]), n)
    excluded = Ragged.build(np.repeat(owners, [len(x) for x in drawn]), np.concatenate([np.sort(x) for x in drawn]), n)
    return TrainingView(n, items, positives, excluded)


def cohort(sizes: tuple[int, ...] = (41, 21, 9, 4, 1, 0)) -> Samples:
    view = lists(sizes, 90)
    return Sampler(view).draw(torch.arange(len(sizes)), negatives=4, seed=-11, round=2)


def there(samples: Samples) -> Samples:
    moved = {name: x.to(DEVICE) if isinstance(x, Tensor) else x for name, x in vars(samples).items()}
    return Samples(**moved)


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def both(
    problem: LocalProblem, params: dict[str, Tensor], samples: Samples, schedule: Schedule, steps: list[Step]
) -> list[list[Tensor]]:
    """What the CPU's and the GPU's twin make of the same parameters, each followed by its losses."""
    results = []
    for kind, device in (("cpu", torch.device("cpu")), ("gpu", DEVICE)):
        assert problem.suits(kind, params, steps)
        mine = {name: value.clone().to(device) for name, value in params.items()}
        cohort = samples if kind == "cpu" else there(samples)
        losses = twins.twin_of(problem, kind)(problem, mine, cohort, schedule, steps)
        results.append([value.cpu() for value in (*mine.values(), losses)])
    return results


def assert_near(results: list[list[Tensor]]) -> None:
    for slow, fast in zip(*results, strict=True):
        torch.testing.assert_close(fast, slow, atol=2e-5, rtol=2e-5)


def assert_orders(out: Tensor, samples: Samples, first: int, last: int) -> None:
    for e, found in zip(range(first, last), out.cpu(), strict=True):
        order = streams.sorted_orders(
            samples.seed, samples.round, samples.clients, e, samples.counts, samples.slots.shape[1]
        )
        expected = 2 * samples.slots.gather(1, order) + samples.labels.gather(1, order).int()
        for c, n in enumerate(samples.counts.tolist()):
            assert torch.equal(found[c, :n], expected[c, :n])


@needs_triton
@pytest.mark.parametrize("held", [1, 1 << 26])  # one epoch at a time, or both
def test_orders_are_the_streams_orders(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedrec.sampling import gpu_streams

    monkeypatch.setattr(gpu_streams, "HELD", held)
    monkeypatch.setattr(gpu_streams, "BLOCK", 128)
    samples = cohort((70, 30, 1, 0))  # more samples than a program looks at
    assert_orders(gpu_streams.shuffled(there(samples), 1, 3), samples, 1, 3)


@needs_triton
def test_equal_keys_keep_their_order() -> None:
    from fedrec.sampling.gpu_streams import shuffled

    n, seed = 2000, 4
    keys = streams.child(streams.keys(seed, streams.Purpose.SHUFFLE, 0, torch.zeros(1)), 0)
    drawn = streams.bits(keys, torch.arange(n)) >> 32
    assert len(drawn.unique()) < n, "no keys are equal: try another seed"
    one = torch.tensor([n]), torch.zeros(1, n, dtype=torch.int32), torch.zeros(1, n)
    slots = torch.arange(n, dtype=torch.int32)[None]
    samples = Samples(torch.zeros(1, dtype=torch.int64), one[1], one[2], slots, one[0], one[1], one[0], one[0], seed, 0)
    assert_orders(shuffled(there(samples), 0, 1), samples, 0, 1)


@needs_triton
def test_orders_that_are_kept_serve_the_next_call() -> None:
    from fedrec.sampling.gpu_streams import shuffled

    samples = cohort((9, 4))
    moved = there(samples)
    kept = shuffled(moved, 0, 3, keep=True)
    taken = shuffled(moved, 1, 3)
    assert taken.data_ptr() == kept[1:].data_ptr()
    assert_orders(taken, samples, 1, 3)
    assert shuffled(moved, 0, 3).data_ptr() != kept.data_ptr(), "kept for one call"
    shuffled(moved, 0, 1, keep=True)
    assert_orders(shuffled(moved, 0, 2), samples, 0, 2)


@needs_triton
@pytest.mark.parametrize("negatives", [0, 1, 4])
@pytest.mark.parametrize(("sizes", "items", "more"), [((41, 21, 0, 1), 90, 5), ((290, 80), 330, 30), ((20, 3), 30, 6)])
def test_samples_are_the_same(sizes: tuple[int, ...], items: int, more: int, negatives: int) -> None:
    from fedrec.sampling.gpu_negatives import draw_samples

    view = lists(sizes, items, more)
    clients = torch.arange(len(sizes)).flip(0)
    expected = Sampler(view).draw(clients, negatives=negatives, seed=5, round=3)
    keys = streams.keys(5, streams.Purpose.NEGATIVES, 3, clients)
    arrays = [
        [torch.from_numpy(x.copy()).to(DEVICE) for x in (y.offsets, y.values)] for y in (view.positives, view.excluded)
    ]
    drawn = draw_samples(
        clients.to(DEVICE), keys.to(DEVICE), expected.counts.to(DEVICE), *map(tuple, arrays),
        n_items=items, negatives=negatives, width=expected.items.shape[1], most_excluded=max(sizes) + more,
    )  # fmt: skip
    names = ("items", "labels", "slots", "rows", "row_counts")
    for name, value in zip(names, drawn, strict=True):
        wanted = getattr(expected, name)
        assert value.dtype == wanted.dtype
        assert torch.equal(value.cpu(), wanted), name


@needs_triton
def test_training_has_the_orders_of_the_adapter_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedrec.sampling import gpu_streams

    made, real = [], gpu_streams._orders
    monkeypatch.setattr(gpu_streams, "_orders", lambda *args: (made.append(args[1:]), real(*args))[1])
    samples, widths, schedule = there(cohort((9, 4))), WIDTHS[0], Schedule(2, 64)
    rows = normal(2, *samples.rows.shape, 5).to(DEVICE)
    user, theta = normal(2, 5).to(DEVICE), torch.zeros(2, MergingAdapter(widths).network.size, device=DEVICE)
    params = {"adapter": theta, "user": user, "local": rows[0], "server": rows[1]}
    adapt, both_steps = [Step(("adapter",), 0.1)], [Step(("adapter",), 0.1), Step(("user", "local"), 0.1)]
    train, plain = (twins.twin_of(x, "gpu") for x in (MergingAdapter(widths), MatrixFactorisation()))
    assert train is not None
    assert plain is not None
    train(MergingAdapter(widths), params, samples, schedule, adapt)
    plain(MatrixFactorisation(), {"user": user, "block": rows[0]}, samples, schedule, [Step(("user", "block"), 0.1)])
    assert made == [(0, 2)]
    for _ in range(2):
        train(MergingAdapter(widths), params, samples, schedule, both_steps)
    assert made == 3 * [(0, 2)], "nothing comes after joint training that would want its orders"


@needs_triton
@pytest.mark.parametrize("dim", [1, 5, 16])
@pytest.mark.parametrize("tile", [16, 4096])  # numbers that a program copies: a few rows, or all
def test_rows_are_taken_and_put_back(dim: int, tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedrec.compute import gpu_rows, rows

    monkeypatch.setattr(gpu_rows, "TILE", tile)
    samples, tables = cohort((9, 3, 0)), normal(5, 90, dim)
    owners, moved, copied = torch.tensor([4, 0, 3]), there(samples), tables.clone().to(DEVICE)
    taken = gpu_rows.take(copied, moved.rows, owners.to(DEVICE))
    assert torch.equal(taken.cpu(), rows.take(tables, samples.rows, owners))
    shared = gpu_rows.take(copied[2], moved.rows, owners.to(DEVICE))
    assert torch.equal(shared.cpu(), tables[2][samples.rows.long()])
    assert gpu_rows.take(copied[:0], moved.rows[:0], owners[:0].to(DEVICE)).shape == (0, *taken.shape[1:])
    gpu_rows.put(copied, moved.rows, owners.to(DEVICE), moved.row_counts, taken + 1)
    rows.put(tables, samples.rows, owners, samples.row_counts, taken.cpu() + 1)
    assert torch.equal(copied.cpu(), tables)


@needs_triton
def test_training_and_the_store_copy_rows_by_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedrec.compute import gpu_rows, rows

    samples, shared = there(cohort((9, 3, 0))), normal(90, 4).to(DEVICE)
    tables, block = normal(3, 90, 4).to(DEVICE), normal(*samples.rows.shape, 4).to(DEVICE)
    inputs = (tables, shared, shared.expand(3, -1, -1), tables[:, :, :3])

    def results() -> list[Tensor]:
        store = ClientStore(torch.tensor([2, 0, 1]))
        store.fill(torch.arange(3), {"items": tables})
        state, after = store.at(torch.tensor([0, 1, 2])), tables.clone()
        taken = [take_rows(table, samples) for table in inputs]
        put_rows(after, samples, block)
        state.put("items", samples, 2 * block)
        return [*taken, state.take("items", samples), after, state["items"]]

    monkeypatch.setattr(dispatch, "compiled_for", lambda *tables: None)
    expected, called = results(), []
    monkeypatch.setattr(dispatch, "compiled_for", lambda *tables: "gpu")
    for name in ("take", "put"):
        real = getattr(gpu_rows, name)
        monkeypatch.setattr(
            gpu_rows, name, lambda *args, _name=name, _real=real: (called.append(_name), _real(*args))[1]
        )
    assert all(map(torch.equal, results(), expected))
    assert called == ["take", "take", "take", "put", "put", "take"]  # a cut table is none
    assert not rows.by_kernel(tables.clone().requires_grad_())


@needs_triton
@pytest.mark.parametrize("held", [1, 1 << 28])  # all epochs in one launch, or one launch each
@pytest.mark.parametrize(
    ("optimizer", "dim", "batch_size", "tol"), [("adam", 5, 40, 0.0), ("sgd", 16, 300, 0.0), ("adam", 16, 64, 0.03)]
)
def test_mf(optimizer: str, dim: int, batch_size: int, tol: float, held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedrec.local.gpu import factorisation

    monkeypatch.setattr(factorisation, "ORDERED", held)
    samples = cohort()
    params = {"user": normal(len(samples.clients), dim), "block": normal(*samples.rows.shape, dim)}
    steps = [Step(("user", "block"), 0.1, optimizer)]
    results = both(MatrixFactorisation(), params, samples, Schedule(3, batch_size, tol), steps)
    assert not torch.equal(results[0][0], params["user"])
    assert_near(results)


@needs_triton
@pytest.mark.parametrize("lr", [None, 0.05])
@pytest.mark.parametrize(("widths", "batch_size", "tol"), [(WIDTHS[0], 40, 0.0), (WIDTHS[1], 100, 0.02)])
def test_adapter(widths: tuple[int, ...], batch_size: int, tol: float, lr: float | None) -> None:
    samples = cohort()
    n, dim = len(samples.clients), widths[0] // 2
    theta = MergingAdapter(widths).network.draw_each(streams.keys(1, streams.Purpose.INIT, 0, torch.arange(n)))
    rows = normal(2, *samples.rows.shape, dim)
    params = {"adapter": theta, "user": normal(n, dim), "local": rows[0], "server": rows[1]}
    steps = [Step(("adapter",), 0.03), *([] if lr is None else [Step(("user", "local"), lr)])]
    results = both(MergingAdapter(widths), params, samples, Schedule(3, batch_size, tol), steps)
    assert not torch.equal(results[0][0], theta)
    assert torch.equal(results[1][2], rows[0]) == (lr is None)
    assert_near(results)


@needs_triton
@pytest.mark.parametrize("widths", WIDTHS)
@pytest.mark.parametrize("shared", [False, True])
def test_row_weights(widths: tuple[int, ...], shared: bool) -> None:
    problem = MergingAdapter(widths)
    theta = problem.network.draw_each(streams.keys(1, streams.Purpose.INIT, 0, torch.arange(3)))
    local, server = normal(3, 600, widths[0] // 2), normal(3, 600, widths[0] // 2) * 2
    server = server[0].contiguous() if shared else server
    weigh = {kind: twins.load(place) for kind, place in twins.ROW_WEIGHTS.items()}
    found = weigh["gpu"](problem, theta.to(DEVICE), local.to(DEVICE), server.to(DEVICE))
    torch.testing.assert_close(found.cpu(), weigh["cpu"](problem, theta, local, server))


@needs_gpu
def test_runs_repeat_to_the_bit() -> None:
    samples = there(cohort((60, 60, 60, 41, 21)))
    results = []
    for _ in range(3):
        user, block = normal(5, 16).to(DEVICE), normal(*samples.rows.shape, 16).to(DEVICE)
        MatrixFactorisation().train(
            {"user": user, "block": block}, samples, Schedule(5, 200), [Step(("user", "block"), 0.1)]
        )
        results.append((user.cpu(), block.cpu()))
    for user, block in results[1:]:
        assert torch.equal(user, results[0][0])
        assert torch.equal(block, results[0][1])
