"""Every compiled twin against the readable reference: on the CPU, and on a GPU or in Triton's interpreter."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import fedrec
from fedrec.compute import dispatch
from fedrec.data.training import Ragged, TrainingView
from fedrec.federation.simulation import Simulation
from fedrec.local import twins
from fedrec.local.adapters import MergingAdapter, adapter_widths
from fedrec.local.factorisation import MatrixFactorisation
from fedrec.local.fit import Params, Schedule, Step
from fedrec.local.linear import AdditiveTables, LinearUnit
from fedrec.local.low_rank import LowRank
from fedrec.local.merged import MergedSamples
from fedrec.local.pair_network import PairNetwork
from fedrec.local.problem import LocalProblem
from fedrec.sampling.negatives import Sampler
from fedrec.sampling.samples import Samples
from local.test_gpu import there
from triton_here import DEVICE, interpreter

ITEMS, DIM, RANK, BATCH = 30, 5, 3, 16
SIZES = (12, 9, 0, 9, 6, 3, 1, 0)  # positives: with 4 negatives 60 samples to none, in batches of 16


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def cohort() -> Samples:
    rng = np.random.default_rng(0)
    owners = np.repeat(np.arange(len(SIZES)), SIZES)
    chosen = [np.sort(rng.choice(ITEMS, size, replace=False)) for size in SIZES]
    lists = Ragged.build(owners, np.concatenate(chosen), len(SIZES))
    view = TrainingView(len(SIZES), ITEMS, lists, lists)
    return Sampler(view).draw(torch.arange(len(SIZES)), negatives=4, seed=-3, round=2)


@dataclass(frozen=True)
class Case:
    """A problem with parameters by the size of their last axes (R: the cohort's rows), and the steps it takes."""

    problem: LocalProblem
    shapes: dict[str, tuple[Any, ...]]
    steps: list[Step]
    stop: float = 0.1  # a tolerance at which some clients stop before the last epoch, and some do not
    atol: float = 2e-4
    rtol: float = 1e-3

    def start(self, samples: Samples) -> Params:
        rows = {"R": samples.rows.shape[1]}
        sizes = {name: [len(SIZES), *(rows.get(x, x) for x in shape)] for name, shape in self.shapes.items()}
        params = {name: normal(*size, seed=seed) for seed, (name, size) in enumerate(sizes.items())}
        if "shrunk" in params:
            params["shrunk"] = torch.ones(len(SIZES))
        if "adapter" in params:
            params["adapter"] = ADAPTER.network.draw_each(torch.arange(len(SIZES)))
        return params


MF = {"user": (DIM,), "block": ("R", DIM)}
ADAPTER = MergingAdapter(adapter_widths(DIM))
MERGING = {"adapter": (ADAPTER.network.size,), "user": (DIM,), "local": ("R", DIM), "server": ("R", DIM)}
POOL = {"pool_local": (7, DIM), "pool_server": (7, DIM)}
UNIT = {"unit": (DIM + 1,), "block": ("R", DIM)}
TABLES = {"unit": (DIM + 1,), "personal": ("R", DIM), "block": ("R", DIM), "shrunk": ()}
RATES = {"unit": 0.3, "personal": 4.0, "block": 4.0, "shrunk": 4.0}
FACTORS = {"user": (DIM,), "base": ("R", DIM), "low": ("R", RANK)}
DECAYING = [Step(tuple(RATES), RATES, "sgd", weight_decay=0.01, lr_decay=0.9)]
ON_ADAPTER, ON_ROWS = Step(("adapter",), 0.03), Step(("user", "local"), 0.05)
NETWORKS = {"network": PairNetwork((6, 4, 3, 2), 2, 0.3), "tower": PairNetwork((10, 4))}
TABLES_TO_MERGE = {name: MERGING[name] for name in ("adapter", "local", "server")}
UNIT_STEPS = [Step(("unit",), 0.3, "sgd"), Step(("local",), 4.0, "sgd")]
RENAMED = {"unit": 0.3, "personal": 4.0, "local": 4.0, "shrunk": 4.0}
DECAYING_LOCAL = [Step(tuple(RENAMED), RENAMED, "sgd", weight_decay=0.01, lr_decay=0.9)]
ADDED = {name: TABLES[name] for name in ("unit", "personal", "shrunk")}
CASES = {
    "mf-adam": Case(MatrixFactorisation(), MF, [Step(("user", "block"), 0.05)]),
    "mf-sgd": Case(MatrixFactorisation(), MF, [Step(("user", "block"), 2.0, "sgd")], stop=0.15),
    "mf-named": Case(MatrixFactorisation("local"), {"user": (DIM,), "local": ("R", DIM)}, [ON_ROWS]),
    "adapter": Case(ADAPTER, MERGING, [ON_ADAPTER], stop=0.02, atol=3e-4),
    "adapter-pool": Case(ADAPTER, MERGING | POOL, [ON_ADAPTER], stop=0.005, atol=3e-4),
    "adapter-joint": Case(ADAPTER, MERGING, [ON_ADAPTER, ON_ROWS], atol=3e-4),
    "unit": Case(LinearUnit(), UNIT, [Step(("unit",), 0.3, "sgd"), Step(("block",), 4.0, "sgd")], stop=0.15),
    "additive-l1": Case(AdditiveTables(0.2, 0.3, 0.0), TABLES, DECAYING, stop=0.3),
    "additive-l2": Case(AdditiveTables(0.2, 0.0, 0.3), TABLES | {"unit": (DIM,)}, DECAYING, stop=0.3),
    "additive-both": Case(AdditiveTables(0.2, 0.2, 0.1), TABLES, DECAYING, stop=0.3),
}
MERGED: list[tuple[str, LocalProblem, dict[str, tuple[Any, ...]], list[Step], tuple[float, float]]] = [
    ("unit", LinearUnit(), {"unit": (DIM + 1,)}, UNIT_STEPS, (0.02, 0.1)),
    ("additive", AdditiveTables(0.2, 0.3, 0.1), ADDED, DECAYING_LOCAL, (0.02, 0.1)),
]
for name, network in NETWORKS.items():
    shapes = {"user": (DIM,), "network": (sum(network.pieces),)}
    CASES[name] = Case(network, {**shapes, "block": ("R", DIM)}, [Step(("user", "network", "block"), 0.02)], stop=0.05)
    MERGED.append((name, network, shapes, [Step(("user", "network", "local"), 0.02)], (0.003, 0.05)))
for name, inner, shapes, steps, stops in MERGED:  # the adapter alone, and everything through it
    looked = MergedSamples(ADAPTER, inner, tuple({"personal"} & set(shapes)))
    for taken, stop in zip(([ON_ADAPTER], [ON_ADAPTER, *steps]), stops, strict=True):
        CASES[f"merged-{name}-{len(taken)}"] = Case(looked, TABLES_TO_MERGE | shapes, taken, stop, atol=5e-4)
for optimizer, lr in (("sgd", 0.5), ("adam", 0.05)):
    for per_row in (True, False):
        problem = LowRank(normal(RANK, DIM), per_row, l2=0.01)
        step = Step(("user", "low"), lr, optimizer)  # type: ignore[arg-type]
        stop = 0.2 if optimizer == "sgd" and per_row else 0.1
        # Plain steps stay close to the bit; Adam's divide by small roots, which magnifies rounding.
        room = (2e-6, 1e-6) if optimizer == "sgd" else (2e-4, 1e-3)
        CASES[f"low-rank-{optimizer}-{per_row}"] = Case(problem, FACTORS, [step], stop, *room)


def run(case: Case, kind: str | None, params: Params, samples: Samples, tol: float, monkeypatch: Any) -> Params:
    """Train copies of ``params``, as they lie in memory, by the twin of this kind (None: the reference)."""
    device = DEVICE if kind == "gpu" else torch.device("cpu")
    mine = {name: value.to(device) for name, value in params.items()}
    used = []
    with monkeypatch.context() as patch:
        patch.setattr(dispatch, "compiled_for", lambda *tensors: kind)
        patch.setattr(twins, "load", lambda place, load=twins.load: used.append(place) or load(place))
        cohort = there(samples) if kind == "gpu" else samples
        losses = case.problem.train(mine, cohort, Schedule(5, BATCH, tol), case.steps)
    assert bool(used) == (kind is not None)
    return {name: value.cpu() for name, value in mine.items()} | {"losses": losses.cpu()}


def assert_same(found: Params, wanted: Params, samples: Samples, case: Case) -> None:
    valid = torch.arange(samples.rows.shape[1]) < samples.row_counts[:, None]
    for name, value in wanted.items():
        rowwise = value.shape[:2] == valid.shape
        pair = [x[name][valid] if rowwise else x[name] for x in (found, wanted)]
        torch.testing.assert_close(*pair, atol=case.atol, rtol=case.rtol, msg=lambda text, name=name: f"{name}: {text}")


def strided(params: Params) -> Params:
    """The same numbers with gaps between them."""
    return {name: torch.stack([x, x], -1)[..., 0] if x.numel() > len(x) else x.clone() for name, x in params.items()}


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_twin_equals_reference(case: Case, stops: bool, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    samples, tol = cohort(), case.stop if stops else 0.0
    params = case.start(samples)
    if kind == "gpu":
        if "gpu" not in twins.TWINS[twins.name_of(case.problem)] or not case.problem.suits("gpu", params, case.steps):
            pytest.skip("the reference serves GPUs")
        if not interpreter():
            pytest.skip("needs a GPU, or Triton and an interpreter that works")

    def copy() -> Params:
        return {name: value.clone() for name, value in params.items()}

    wanted = run(case, None, copy(), samples, tol, monkeypatch)
    found = run(case, kind, copy(), samples, tol, monkeypatch)
    assert_same(found, wanted, samples, case)
    moved = {name for step in case.steps for name in step.names}
    for name, value in params.items():
        assert torch.equal(found[name], value) == (name not in moved), name
        for client in (2, 7):  # has no samples, so it rests
            assert torch.equal(found[name][client], value[client])
    if stops:
        on = run(case, kind, copy(), samples, 0.0, monkeypatch)
        stopped = int((on["losses"] != found["losses"]).sum())
        assert 0 < stopped < 6, "some clients, not all"
    gaps = run(case, kind, strided(params), samples, tol, monkeypatch)
    for name, value in found.items():
        assert torch.equal(gaps[name], value), name
    fields = ("clients", "items", "labels", "slots", "counts", "rows", "row_counts", "positives")
    for client in (0, 4, 7):
        here = slice(client, client + 1)
        one = replace(samples, **{name: getattr(samples, name)[here] for name in fields})
        alone = run(case, kind, {name: value[here].clone() for name, value in params.items()}, one, tol, monkeypatch)
        for name, value in found.items():
            assert torch.equal(alone[name][0], value[client]), name


def test_every_twin_is_tested_and_there() -> None:
    assert {twins.name_of(case.problem) for case in CASES.values()} == set(twins.TWINS)
    for place in [*(kinds["cpu"] for kinds in twins.TWINS.values()), twins.ROW_WEIGHTS["cpu"]]:
        assert callable(twins.load(place))


@pytest.mark.parametrize(
    ("problem", "shapes", "steps"),
    [
        (MatrixFactorisation(), MF, [Step(("user",), 0.1)]),
        (MatrixFactorisation(), MF, [Step(("user", "block"), {"user": 0.1, "block": 0.2})]),
        (MatrixFactorisation(), MF, [Step(("user", "block"), 0.1, weight_decay=0.1)]),
        (MatrixFactorisation(), MF, [Step(("user", "block"), 0.1, lr_decay=0.9)]),
        (MatrixFactorisation(), MF, [Step(("user", "block"), 0.1, loss=LinearUnit().loss)]),
        (MatrixFactorisation(), MF, [Step(("user",), 0.1), Step(("block",), 0.1)]),
        (ADAPTER, MERGING, [Step(("adapter",), 0.1, "sgd")]),
        (ADAPTER, MERGING, [ON_ROWS]),
        (ADAPTER, MERGING, [ON_ADAPTER, replace(ON_ROWS, loss=MatrixFactorisation("local").loss)]),
        (ADAPTER, MERGING | POOL, [ON_ADAPTER, ON_ROWS]),
        (LinearUnit(), UNIT, [Step(("unit", "block"), 0.1, "sgd")]),
        (LinearUnit(), UNIT, [Step(("unit",), 0.1), Step(("block",), 0.1)]),
        (LinearUnit(), UNIT | {"unit": (DIM,)}, [Step(("unit",), 0.1, "sgd"), Step(("block",), 0.1, "sgd")]),
        (AdditiveTables(0, 0, 0), TABLES, [Step(tuple(RATES), RATES)]),
        (AdditiveTables(0, 0, 0), TABLES, [Step(tuple(RATES), RATES | {"block": 1.0}, "sgd")]),
        (LowRank(normal(RANK, DIM), True, 0.0), FACTORS, [Step(("user", "low", "base"), 0.1)]),
        (PairNetwork((), DIM), UNIT, [Step(("user", "network", "block"), 0.1)]),
        (PairNetwork((10, 4)), UNIT, [Step(("user", "network", "block"), 0.1, "sgd")]),
        (MergedSamples(ADAPTER, PairNetwork((), DIM)), MERGING, [ON_ADAPTER]),
        (MergedSamples(ADAPTER, MatrixFactorisation()), MERGING, [ON_ADAPTER]),
        (MergedSamples(ADAPTER, AdditiveTables(0, 0, 0)), MERGING, [ON_ADAPTER]),
        (MergedSamples(ADAPTER, LinearUnit(), ("personal",)), MERGING, [ON_ADAPTER]),
        (MergedSamples(ADAPTER, LinearUnit()), MERGING | POOL, [ON_ADAPTER]),
        (MergedSamples(ADAPTER, LinearUnit()), MERGING, UNIT_STEPS),
        (MergedSamples(ADAPTER, LinearUnit()), MERGING | UNIT, [ON_ADAPTER, *reversed(UNIT_STEPS)]),
        (MergedSamples(ADAPTER, LinearUnit()), MERGING, [replace(ON_ADAPTER, loss=LinearUnit().loss)]),
    ],
)
def test_what_a_twin_does_not_compute_it_does_not_get(problem: LocalProblem, shapes: Any, steps: list[Step]) -> None:
    assert not problem.suits("cpu", Case(problem, shapes, steps).start(cohort()), steps)


def test_gpu_adapters_have_two_small_hidden_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    for hidden, fits in (((16, 8), True), ((16,), False), ((4, 4, 4), False), ((40, 8), False)):
        problem = MergingAdapter(adapter_widths(DIM, hidden))
        assert problem.suits("gpu", dict.fromkeys(MERGING, torch.zeros(1)), [ON_ADAPTER]) == fits
        assert problem.suits("cpu", dict.fromkeys(MERGING, torch.zeros(1)), [ON_ADAPTER])
        assert MergedSamples(problem, LinearUnit()).suits("gpu", dict.fromkeys(MERGING), [ON_ADAPTER]) == fits
        assert MergedSamples(problem, NETWORKS["tower"]).suits("gpu", dict.fromkeys(MERGING), [ON_ADAPTER]) == fits
    additive = MergedSamples(ADAPTER, AdditiveTables(0, 0, 0), ("personal",))
    assert not additive.suits("gpu", dict.fromkeys(MERGING), [ON_ADAPTER])
    assert not ADAPTER.suits("gpu", dict.fromkeys(MERGING | POOL, torch.zeros(1)), [ON_ADAPTER])
    deep = MergingAdapter(adapter_widths(DIM, (4, 4, 4)))
    theta, rows = normal(2, deep.network.size), normal(2, 9, DIM)
    wanted = deep.table_weights(theta, rows, rows + 1)
    monkeypatch.setattr(dispatch, "compiled_for", lambda *tensors: "gpu")
    torch.testing.assert_close(deep.table_weights(theta, rows, rows + 1), wanted)


@pytest.mark.parametrize(
    ("widths", "product", "fits"),
    [((32, 64, 32, 16, 8), 16, True), ((64, 32), 32, True), ((128, 32, 64), 0, True), ((16, 128), 0, True),
     ((64, 33), 32, False), ((32, 64, 33), 16, False), ((16, 129), 0, False), ((32, 8), 49, False),
     ((32,), 16, False), ((), 32, False)],
)  # fmt: skip
def test_gpu_networks_are_small(widths: tuple[int, ...], product: int, fits: bool) -> None:
    problem, step = PairNetwork(widths, product), Step(("user", "network", "block"), 0.1)
    assert problem.suits("gpu", {}, [step]) == fits
    assert MergedSamples(ADAPTER, problem).suits("gpu", {}, [ON_ADAPTER]) == fits
    assert problem.suits("cpu", {}, [step]) == (len(widths) > 1)
    assert not MergedSamples(ADAPTER, problem, ("personal",)).suits("gpu", {}, [ON_ADAPTER])


METHODS = {
    "fedmf": {}, "fedem": {"merge": "elastic"}, "pfedrec": {}, "fedrap": {}, "colr": {},
}  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_compiled_code_can_be_switched_off(name: str, small: fedrec.Split, monkeypatch: pytest.MonkeyPatch) -> None:
    """The references of training, negatives, orders and adapter weights give the same rounds without a kernel."""
    method = fedrec.create(name, epochs=2, dim=4, **METHODS[name])
    everybody, scores = torch.arange(40), []
    for switch in ("on", "off"):
        monkeypatch.setenv("FEDREC_KERNELS", switch)
        simulation = Simulation(method, small.training)
        for number in range(2):
            simulation.round(number)
        scores.append(simulation.scores(everybody))
        for module in ("fedrec.sampling.streams", "fedrec.sampling.negatives"):
            monkeypatch.setattr(f"{module}.for_clients", refuse)
        monkeypatch.setattr(twins, "load", refuse)
    torch.testing.assert_close(scores[1], scores[0], atol=1e-3, rtol=1e-3)


def refuse(*_: object, **__: object) -> None:
    raise AssertionError("compiled code ran")


def test_a_subclass_has_no_twin_even_under_the_same_name() -> None:
    other = type("LinearUnit", (LinearUnit,), {"__module__": "elsewhere"})
    assert twins.twin_of(LinearUnit(), "cpu") is not None
    assert twins.twin_of(other(), "cpu") is None
