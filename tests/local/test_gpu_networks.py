"""Networks on user and item on a GPU, merged or not: tiles, launches, orders and repeats, against the CPU's kernel."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fedrec.local.adapters import MergingAdapter, adapter_widths
from fedrec.local.fit import Schedule, Step
from fedrec.local.merged import MergedSamples
from fedrec.local.pair_network import PairNetwork
from fedrec.local.problem import LocalProblem
from fedrec.sampling import streams
from fedrec.sampling.samples import Samples
from local.test_gpu import both, cohort, normal, there
from triton_here import DEVICE, needs_gpu, needs_triton

NETWORK = PairNetwork((22, 7, 20, 3), 5, 0.1)
ADAPTER = MergingAdapter(adapter_widths(16, (9, 4)))
ON_ADAPTER = Step(("adapter",), 0.03)


def kinds(network: PairNetwork = NETWORK) -> dict[str, tuple[LocalProblem, list[Step]]]:
    merged = MergedSamples(ADAPTER, network)
    return {
        "alone": (network, [Step(("user", "network", "block"), 0.02)]),
        "adapter": (merged, [ON_ADAPTER]),
        "both": (merged, [ON_ADAPTER, Step(("user", "network", "local"), 0.02)]),
    }


def start(samples: Samples, kind: str, network: PairNetwork = NETWORK) -> dict[str, Tensor]:
    n, dim = len(samples.clients), network.widths[0] // 2 + network.product
    rows = normal(2, *samples.rows.shape, dim)
    params = {"user": normal(n, dim), "network": 0.3 * normal(n, sum(network.pieces))}
    if kind == "alone":
        return params | {"block": rows[0]}
    theta = ADAPTER.network.draw_each(streams.keys(1, streams.Purpose.INIT, 0, torch.arange(n)))
    return params | {"adapter": theta, "local": rows[0], "server": rows[1]}


@needs_triton
@pytest.mark.parametrize("kind", ["alone", "adapter", "both"])
@pytest.mark.parametrize("held", [1, 1 << 28])  # all epochs in one launch, or one launch each
def test_batches_of_several_tiles(kind: str, held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedrec.local.gpu import merged

    monkeypatch.setattr(merged, "MOST", 16)
    monkeypatch.setattr("fedrec.local.gpu.factorisation.ORDERED", held)
    samples, (problem, steps) = cohort((17, 9, 4, 0)), kinds()[kind]
    params = start(samples, kind)
    slow, fast = both(problem, params, samples, Schedule(2, 40), steps)
    moved = {name for step in steps for name in step.names}
    for (name, before), wanted, found in zip(params.items(), slow, fast, strict=False):
        assert torch.equal(wanted, before) == (name not in moved)
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(fast[-1], slow[-1])


@needs_triton
def test_training_has_the_orders_of_the_adapter_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedrec.local.gpu import merged
    from fedrec.sampling import gpu_streams

    made, real = [], gpu_streams._orders
    monkeypatch.setattr(gpu_streams, "_orders", lambda *args: (made.append(args[1:]), real(*args))[1])
    samples, problems = there(cohort((2, 1))), kinds()
    for kind, train, epochs in (("adapter", merged.train, 3), ("alone", merged.train_network, 2)):
        problem, steps = problems[kind]
        params = {name: value.to(DEVICE) for name, value in start(samples, kind).items()}
        train(problem, params, samples, Schedule(epochs, 64), steps)
    assert made == [(0, 3)]


@needs_triton
@pytest.mark.parametrize("kind", ["alone", "adapter"])
def test_nobody_trains_nothing(kind: str) -> None:
    samples, (problem, steps) = there(cohort((0, 0))), kinds()[kind]
    params = {name: value.to(DEVICE) for name, value in start(samples, kind).items()}
    from fedrec.local import twins

    train = twins.twin_of(problem, "gpu")
    assert train is not None
    assert torch.equal(train(problem, params, samples, Schedule(1, 8), steps).cpu(), torch.zeros(2))


@needs_gpu
@pytest.mark.parametrize("kind", ["alone", "adapter", "both"])
def test_runs_repeat_to_the_bit(kind: str) -> None:
    network = PairNetwork((16, 64, 32, 16, 8), 8)  # as wide as FedNCF's own
    samples, (problem, steps) = there(cohort((60, 60, 60, 41, 21))), kinds(network)[kind]
    results = []
    for _ in range(3):
        params = {name: value.to(DEVICE) for name, value in start(samples, kind, network).items()}
        losses = problem.train(params, samples, Schedule(5, 200), steps)
        results.append([value.cpu() for value in (*params.values(), losses)])
    for again in results[1:]:
        assert all(map(torch.equal, again, results[0]))
