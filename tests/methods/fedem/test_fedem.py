import pytest
import torch

import fedrec
from fedrec.errors import ConfigError
from fedrec.evaluation import Evaluator
from fedrec.federation.simulation import Simulation
from fedrec.methods.fedem import FedEM
from fedrec.methods.fedmf import FedMF, Local
from fedrec.parts.merger import ADAPTER
from fedrec.testing import MethodSuite


class TestPaperVariant(MethodSuite):
    method = FedEM
    options = {"epochs": 3, "lr": 0.05, "init_std": 0.01, "adapter_lr": 0.001, "adapter_epochs": 1}
    rounds = 10
    floor = 0.22


class TestCodeVariant(MethodSuite):
    method = FedEM
    options = {"epochs": 2, "lr": 0.02, "init_std": 0.05, "variant": "code", "agg_ratio": 0.8, "alpha": 0.1}
    options |= {"pca_sign": "fixed"}  # a raw sign may differ between libraries and between sizes of a batch
    rounds = 10
    floor = 0.19


SHORT = {"epochs": 2, "lr": 0.05}


def tables(method, split, rounds=3):
    simulation = Simulation(method, split.training)
    for number in range(rounds):
        simulation.round(number)
    everybody = torch.arange(split.data.n_users)
    return simulation.store.at(everybody)["items"].clone(), simulation.scores(everybody), simulation


def test_the_variants_are_presets_that_can_be_overridden():
    code = FedEM(variant="code").config
    assert (code.agg_ratio, code.similarity, code.weights, code.adapter_schedule) == (
        0.1,
        "pca1",
        "unscaled",
        "interleaved",
    )
    paper = FedEM(variant="paper").config
    assert (paper.agg_ratio, paper.similarity, paper.weights, paper.adapter_schedule) == (
        1.0,
        "table",
        "scaled",
        "before",
    )
    assert (code.pca_sign, paper.pca_sign) == ("raw", "fixed")
    assert FedEM(variant="code", agg_ratio=0.5).config.agg_ratio == 0.5


def test_no_merging_equals_local_training(small):
    none = tables(FedEM(merge="none", **SHORT), small)
    local = Simulation(Local(lr=0.05, epochs=2, init_std=1.0, common_init=True), small.training)
    for number in range(3):
        local.round(number)
    everybody = torch.arange(small.data.n_users)
    assert torch.equal(none[0], local.store.at(everybody)["items"])
    assert torch.equal(none[1], local.scores(everybody))


def test_static_merging_with_weight_0_and_1(small):
    none, zero = (tables(FedEM(merge=mode, rho=0.0, **SHORT), small)[1] for mode in ("none", "static"))
    assert torch.equal(none, zero)
    replace, one = (tables(FedEM(merge=mode, rho=1.0, **SHORT), small)[1] for mode in ("replace", "static"))
    assert torch.allclose(replace, one, atol=1e-5)


def test_replacement_with_data_weights_is_fedmf(small):
    """SR with the size-weighted mean is FedMF with rule B."""
    ours = tables(FedEM(merge="replace", agg="mean", **SHORT), small)[1]
    fedmf = Simulation(FedMF(agg="size", init_std=1.0, common_init=True, **SHORT), small.training)
    for number in range(3):
        fedmf.round(number)
    assert (ours - fedmf.scores(torch.arange(small.data.n_users))).abs().max() < 1e-3


def test_only_the_drawn_share_uploads_and_is_served(small):
    simulation = tables(FedEM(variant="code", agg_ratio=0.25, **SHORT), small, rounds=1)[2]
    assert int((simulation.server["slot"] >= 0).sum()) == 10
    assert len(simulation.server["tables"]) == 10
    report = simulation.round(1)
    table = small.data.n_items * 16 * 4
    assert report.bytes_up == 10 * table
    assert report.bytes_down == 10 * table + small.data.n_users, "ten tables, and a flag for everybody"


def test_the_subset_is_drawn_anew_every_round(small):
    simulation = Simulation(FedEM(variant="code", agg_ratio=0.25, **SHORT), small.training)
    served = []
    for number in range(3):
        simulation.round(number)
        served.append(tuple((simulation.server["slot"] >= 0).nonzero().flatten().tolist()))
    assert len(set(served)) == 3


def test_dynamic_with_a_constant_adapter_is_static(small):
    dynamic = FedEM(merge="dynamic", adapter_lr=1e-12, **SHORT)
    simulation = Simulation(dynamic, small.training)
    simulation.store.tensors[ADAPTER].zero_()  # sigmoid(0) = 1/2 for every row
    static = Simulation(FedEM(merge="static", rho=0.5, **SHORT), small.training)
    for number in range(3):
        simulation.round(number)
        static.round(number)
    everybody = torch.arange(small.data.n_users)
    assert (simulation.scores(everybody) - static.scores(everybody)).abs().max() < 1e-3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"merge": "dynamic", "variant": "code"}, "dynamic merging needs"),
        ({"merge": "elastc"}, "merge"),
        ({"rho": 1.5}, "rho"),
        ({"variant": "released"}, "variant"),
        ({"adapter_hidden": [0]}, "adapter_hidden"),
    ],
)
def test_bad_settings(options, words):
    with pytest.raises(ConfigError, match=words):
        FedEM(**options)


@pytest.mark.parametrize("schedule", ["before", "interleaved"])
@pytest.mark.parametrize("through", [False, True])
def test_every_schedule_trains(small, schedule, through):
    method = FedEM(adapter_schedule=schedule, train_through_adapter=through, **SHORT)
    _, scores, simulation = tables(method, small, rounds=3)
    start = method.client_state(simulation.task, torch.tensor([0]))
    assert not torch.equal(simulation.store.at(torch.tensor([0]))[ADAPTER], start[ADAPTER])
    assert bool(torch.isfinite(scores).all())


def test_published_curve_on_ml_100k(real_data):
    """Test HR@10 of the released code over its first rounds: .137, .217, .263, .335, .389 (one seed)."""
    split = fedrec.PAPER.split(real_data("ml-100k"), seed=0)
    simulation = Simulation(FedEM(variant="code"), split.training)
    found = []
    for number in range(5):
        simulation.round(number)
        result = Evaluator(split).evaluate(simulation.scores, "test", order=simulation.client_order)
        found.append(result["test"].means()["sampled"]["hr@10"])
    assert found == pytest.approx([0.137, 0.217, 0.263, 0.335, 0.389], abs=0.03)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "protocol", "hr", "ndcg"),
    [
        ("fedem", {"variant": "code"}, "paper", (0.96, 1.0), (0.88, 1.0)),
        ("local", {}, "paper", (0.98, 1.0), (0.92, 1.0)),
        ("fedmf", {}, "paper", (0.41, 0.47), (0.22, 0.28)),
        ("fedem", {"variant": "code"}, "honest", (0.14, 0.20), (0.05, 0.11)),
        ("local", {}, "honest", (0.07, 0.13), (0.02, 0.08)),
        ("fedmf", {"rounds": 200}, "honest", (0.56, 0.62), (0.31, 0.37)),
    ],
)
def test_numbers_on_ml_100k(real_data, name, options, protocol, hr, ndcg):
    """The numbers of independent prototypes at the last round, within 0.03 (floors where they are floors)."""
    data = real_data("ml-100k")
    options = dict(options)
    rounds = options.pop("rounds", 100)
    method = fedrec.create(name, protocol=protocol, data="ml-100k", **options)
    run = fedrec.train(
        method, fedrec.preset(protocol).split(data), rounds=rounds, evaluate_every=10, progress=False, device="cpu"
    )
    final = run.result.final.test.sampled
    assert hr[0] <= final["hr@10"] <= hr[1]
    assert ndcg[0] <= final["ndcg@10"] <= ndcg[1]
