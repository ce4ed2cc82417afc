import pytest
import torch

import fedrec
from fedrec.errors import ConfigError
from fedrec.federation.privacy import Privacy, PrivacyStage
from fedrec.federation.simulation import Simulation
from fedrec.federation.trainer import Setup
from fedrec.methods import create
from fedrec.methods.fedcia import FedCIA, Spectral
from fedrec.testing import MethodSuite

QUICK = {"align_steps": 10, "rank": 32, "agg_lr": 0.01}


class TestFedCIA(MethodSuite):
    method = FedCIA
    options = QUICK | {"lr": 0.1}
    rounds = 10
    floor = 0.18


class TestReleasedChoices(MethodSuite):
    method = FedCIA
    options = QUICK | {
        "rank": None, "loss": "elementwise_mse", "negatives": 1, "negatives_once": True, "lr": 0.3,
        "evaluate_before": True, "noise": 0.001,
    }  # fmt: skip
    rounds = 5
    floor = 0.2


class TestSpectral(MethodSuite):
    method = FedCIA
    options = {"variant": "gsp"}
    rounds = 1
    floor = 0.45
    deterministic = True


@pytest.fixture(scope="module")
def demo() -> fedrec.Split:
    return fedrec.HONEST.split(fedrec.load("demo"), seed=0)


def test_variant_chooses_the_class() -> None:
    made = create("fedcia", variant="gsp")
    assert isinstance(made, Spectral)
    assert made.rounds == 1
    assert type(FedCIA()) is FedCIA
    with pytest.raises(ConfigError, match="variant"):
        FedCIA(variant="spectral")


def test_bytes_are_those_of_the_variant(demo: fedrec.Split) -> None:
    n, m, d, k = demo.data.n_users, demo.data.n_items, 16, 32
    for fast, numbers in ((False, m * m), (True, m * d)):
        simulation = Simulation(FedCIA(**QUICK, fast_com=fast), demo.training)
        first, second = simulation.round(0), simulation.round(1)
        assert first.bytes_up == second.bytes_up == n * numbers * 4
        assert first.bytes_down == 0
        assert second.bytes_down == n * (m * k + k) * 4
    spectral = Simulation(FedCIA(variant="gsp", fast_com=True), demo.training).round(0)
    assert spectral.bytes_up == len(demo.training.positives.values) * (2 * 4 + 4)
    assert spectral.bytes_down == n * m * m * 4
    assert Simulation(FedCIA(variant="gsp"), demo.training).round(0).bytes_up == n * m * m * 4


def test_forms_of_the_upload_give_the_same_server(demo: fedrec.Split) -> None:
    for options, name in ((QUICK | {"lr": 0.1}, "values"), ({"variant": "gsp"}, "filter")):
        states = []
        for fast in (False, True):
            simulation = Simulation(FedCIA(**options, fast_com=fast), demo.training)
            simulation.round(0)
            states.append(simulation.server[name])
        assert torch.allclose(*states, atol=1e-6)
        assert states[0].abs().max() > 1e-3


def test_adam_persists_and_is_private(demo: fedrec.Split) -> None:
    kept, fresh = (Simulation(FedCIA(**QUICK, fresh_optimizer=f), demo.training) for f in (False, True))
    for number in range(2):
        kept.round(number)
        fresh.round(number)
    assert "items.first" in kept.store.tensors
    assert not any("first" in name for name in [*fresh.store.tensors, *kept.server])
    assert bool((kept.store.tensors["steps"] == 2).all())  # one batch per round
    assert not torch.equal(kept.store.tensors["user"], fresh.store.tensors["user"])


def test_first_steps_do_not_depend_on_the_memory(demo: fedrec.Split) -> None:
    tables = []
    for fresh in (False, True):
        simulation = Simulation(FedCIA(**QUICK, fresh_optimizer=fresh), demo.training)
        simulation.round(0)
        tables.append(simulation.store.tensors["items"])
    assert torch.equal(*tables)


def test_sketch_is_close_to_the_whole_matrix(demo: fedrec.Split) -> None:
    """After two rounds, in which the sketch is warm, scores with k = 64 of 400 eigenpairs agree with all."""
    found = []
    for rank in (64, None):
        simulation = Simulation(FedCIA(lr=0.1, align_steps=20, agg_lr=0.01, rank=rank), demo.training)
        for number in range(2):
            simulation.round(number)
        found.append(simulation.scores(torch.arange(50)))
    assert (found[0] - found[1]).norm() / found[1].norm() < 0.03


def test_alignment_shows_in_the_scores(demo: fedrec.Split) -> None:
    simulation = Simulation(FedCIA(**QUICK, lr=0.1, evaluate_before=True), demo.training)
    everybody = torch.arange(demo.data.n_users)
    simulation.round(0)
    before, after = simulation.scores(everybody, "before_alignment"), simulation.scores(everybody)
    assert not torch.allclose(before, after, atol=1e-3)
    assert simulation.views == ("before_alignment",)


def test_negatives_once(demo: fedrec.Split) -> None:
    assert FedCIA(negatives_once=True).sampling_round(7) == 0
    assert FedCIA().sampling_round(7) == 7


def test_noise_changes_the_mean_by_its_size(demo: fedrec.Split) -> None:
    """The mean of C Laplace(0, b) draws has variance 2 b^2 / C."""
    filters = []
    for noise in (0.0, 0.5):
        simulation = Simulation(FedCIA(variant="gsp", noise=noise), demo.training)
        simulation.round(0)
        filters.append(simulation.server["filter"])
    assert float((filters[1] - filters[0]).std()) == pytest.approx(0.5 * (2 / demo.data.n_users) ** 0.5, rel=0.02)


def test_tables_nobody_knows_cannot_be_made_private(demo: fedrec.Split) -> None:
    stage = PrivacyStage(Privacy(scale=0.01), seed=0)
    with pytest.raises(fedrec.ConfigError, match="cannot be combined with a privacy stage"):
        Simulation(FedCIA(**QUICK), demo.training, Setup(privacy=stage))
    report = Simulation(FedCIA(**QUICK), demo.training).round(0)
    assert report.bytes_up == demo.data.n_users * demo.data.n_items**2 * 4


def test_spectral_score_by_definition(demo: fedrec.Split) -> None:
    """X_c F_c + agg_p X_c F with F_c = (1 + w_p) r r' / n for one user."""
    simulation = Simulation(FedCIA(variant="gsp", filter_weight=0.3, agg_p=60), demo.training)
    simulation.round(0)
    x = torch.zeros(demo.data.n_users, demo.data.n_items)
    positives = demo.training.positives
    x[torch.tensor(positives.owners), torch.tensor(positives.values).long()] = 1
    mean = 1.3 * (x / x.sum(1, keepdim=True)).T @ x / len(x)
    assert torch.allclose(simulation.scores(torch.arange(len(x))), 1.3 * x + 60 * x @ mean, atol=1e-3)
