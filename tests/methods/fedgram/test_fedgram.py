import pytest
import torch
from safetensors.torch import load_file

import fedrec
from fedrec.data.training import Ragged, TrainingView
from fedrec.errors import ConfigError
from fedrec.federation.privacy import Privacy
from fedrec.federation.simulation import Simulation
from fedrec.federation.trainer import Setup
from fedrec.methods.central.ease import EASE
from fedrec.methods.fedgram import FedGram
from fedrec.parts.gaussian import noise_multiplier, spent_epsilon
from fedrec.parts.symmetric import unpack
from fedrec.testing import MethodSuite

EVERYBODY = torch.arange(40)


class TestFedGram(MethodSuite):
    method = FedGram
    options = {"lam": 100}
    rounds = 1
    floor = 0.66
    deterministic = True


class TestReduced(MethodSuite):
    """Everything at once: popular items only, few eigenpairs, unit rows, noise."""

    method = FedGram
    options = {"lam": 5, "top_items": 60, "rank": 10, "normalise": True, "epsilon": 200, "n_max": 30}
    rounds = 2
    floor = 0.32


def federated(method, view, rounds=None, **options):
    simulation = Simulation(method, view, **options)
    for number in range(method.rounds if rounds is None else rounds):
        simulation.round(number)
    return simulation


def counts(simulation):
    """The server's sum."""
    return unpack(simulation.server["working.gram"], len(simulation.server["items"]))


def centralised(view, **options):
    trainer = EASE(**options).trainer(view, Setup(0))
    trainer.round(0)
    return trainer


@pytest.mark.parametrize("normalise", [False, True])
def test_without_noise_it_is_centralised_ease(small, normalise):
    found = federated(FedGram(lam=20, normalise=normalise), small.training, cohort_samples=64)
    expected = centralised(small.training, lam=20, normalise=normalise)
    assert torch.allclose(found.server["weights"], expected.model["weights"], atol=1e-5)
    assert torch.allclose(found.scores(EVERYBODY), expected.scores(EVERYBODY), atol=1e-5)
    assert float(expected.model["weights"].abs().max()) > 1e-3


@pytest.mark.parametrize("options", [{}, {"rank": 60}, {"top_items": 60}])
def test_what_is_recent_counts_more(small, options):
    view = small.training
    found = federated(FedGram(lam=20, delta_q=3.0, **options), view).scores(EVERYBODY)
    queries = torch.zeros(40, view.n_items)
    for client in range(40):
        own = torch.tensor(view.history[client]).long()
        queries[client, own] = torch.exp(-(len(own) - 1 - torch.arange(len(own))) / 3.0)
    expected = queries @ centralised(view, lam=20).model["weights"]
    assert torch.allclose(found, expected, atol=1e-5)
    assert torch.allclose(centralised(view, lam=20, delta_q=3.0).scores(EVERYBODY), expected, atol=1e-5)
    untimed = TrainingView(view.n_clients, view.n_items, view.positives, view.excluded)
    plain = federated(FedGram(lam=20, **options), view).scores(EVERYBODY)
    assert torch.equal(federated(FedGram(lam=20, delta_q=3.0, **options), untimed).scores(EVERYBODY), plain)


def test_the_sum_is_exact_in_integers(small):
    simulation = federated(FedGram(), small.training)
    x = torch.zeros(40, small.data.n_items, dtype=torch.int64)
    positives = small.training.positives
    x[torch.from_numpy(positives.owners), torch.from_numpy(positives.values.astype("int64"))] = 1
    assert torch.equal(counts(simulation).long(), x.T @ x)
    assert torch.equal(simulation.store.at(EVERYBODY)["history"], x.bool())


def test_bytes_are_those_of_a_triangle_up_and_the_weights_down(small):
    m = small.data.n_items
    report = Simulation(FedGram(), small.training, cohort_samples=64).round(0)
    assert report.bytes_up == 40 * 4 * m * (m + 1) // 2
    assert report.bytes_down == 40 * 4 * m * m
    low = Simulation(FedGram(rank=5), small.training).round(0)
    assert low.bytes_down == 40 * 4 * (5 * m + 1)


def test_top_items_count_first_and_then_send_a_smaller_triangle(small):
    m, method = small.data.n_items, FedGram(lam=20, top_items=15)
    assert method.rounds == 2
    simulation = Simulation(method, small.training)
    assert simulation.round(0).bytes_up == 40 * 4 * m
    seen = torch.bincount(torch.from_numpy(small.training.positives.values).long(), minlength=m)
    assert torch.equal(simulation.server["popularity"].long(), seen)
    assert simulation.round(1).bytes_up == 40 * 4 * 15 * 16 // 2
    chosen = simulation.server["items"]
    rest = torch.ones(m, dtype=torch.bool)
    rest[chosen] = False
    assert int(seen[chosen].min()) >= int(seen[rest].max())
    scores = simulation.scores(EVERYBODY)
    assert bool((scores[:, chosen].amin(1) > scores[:, rest].amax(1)).all())
    order = scores[0, rest].argsort(descending=True)
    assert bool((seen[rest][order].diff() <= 0).all()), "the others rank by popularity"


def test_all_items_as_top_items_is_the_whole_model(small):
    whole = federated(FedGram(lam=20), small.training).scores(EVERYBODY)
    top = federated(FedGram(lam=20, top_items=10_000), small.training).scores(EVERYBODY)
    assert torch.allclose(whole, top, atol=1e-6)


def test_all_eigenpairs_are_the_whole_model_and_few_come_near(small):
    whole = federated(FedGram(lam=20), small.training).scores(EVERYBODY)
    errors = [
        float((federated(FedGram(lam=20, rank=rank), small.training).scores(EVERYBODY) - whole).abs().mean())
        for rank in (1, 20, small.data.n_items)
    ]
    assert errors[2] < 1e-5 < errors[1] < errors[0]


def test_few_weights_of_few_bits_come_near(small):
    whole = federated(FedGram(lam=20), small.training)
    errors = [
        float(
            (federated(FedGram(lam=20, **less), small.training).scores(EVERYBODY) - whole.scores(EVERYBODY))
            .abs()
            .mean()
        )
        for less in ({"keep": 60}, {"keep": 60, "bits": 8}, {"keep": 8}, {"keep": 3})
    ]
    assert errors[0] < 1e-6 < errors[1] < errors[2] < errors[3]
    report = Simulation(FedGram(keep=10, bits=8), small.training).round(0)
    assert report.bytes_down == 40 * 60 * (10 * (1 + 2) + 4)
    faded = federated(FedGram(lam=20, keep=60, delta_q=3.0), small.training).scores(EVERYBODY)
    assert torch.allclose(faded, federated(FedGram(lam=20, delta_q=3.0), small.training).scores(EVERYBODY), atol=1e-6)
    with pytest.raises(ConfigError, match="set one of them"):
        FedGram(keep=10, rank=5)


def test_a_saved_model_has_the_weights_and_not_the_counts(small, tmp_path):
    run = fedrec.train(FedGram(lam=20, keep=10), small, device="cpu", progress=False, out=tmp_path / "run")
    saved = load_file(tmp_path / "run" / "model" / "server.safetensors")
    assert sorted(saved) == ["server.items", "server.kept", "server.values"]
    again = fedrec.load_run(tmp_path / "run")
    assert torch.equal(again.trainer.scores(EVERYBODY), run.trainer.scores(EVERYBODY))


def test_returning_clients_send_what_changed(small):
    """A first round with shorter histories, then the rest of them: the server ends where one round would."""
    view = small.training
    kept = torch.arange(len(view.positives.values)) % 4 != 0
    owners, values = view.positives.owners[kept.numpy()], view.positives.values[kept.numpy()]
    shorter = TrainingView(view.n_clients, view.n_items, Ragged.build(owners, values, view.n_clients), view.excluded)
    early = federated(FedGram(lam=20), shorter)
    late = Simulation(FedGram(lam=20), view)
    late.load_state(early.state())
    late.round(1)
    once = federated(FedGram(lam=20), view)
    assert not torch.equal(counts(early), counts(once))
    assert torch.equal(counts(late), counts(once))
    assert torch.allclose(late.scores(EVERYBODY), once.scores(EVERYBODY), atol=1e-6)


def test_partial_participation_grows_to_the_whole_sum(small):
    whole = federated(FedGram(), small.training)
    part = federated(FedGram(participation=0.5), small.training, rounds=1)
    assert float(counts(part).sum()) < float(counts(whole).sum())
    later = federated(FedGram(participation=0.5), small.training, rounds=20)
    assert torch.equal(counts(later), counts(whole))


def test_a_capped_client_counts_n_max_items(small):
    method = FedGram(n_max=4)
    diagonal = counts(federated(method, small.training)).diagonal()
    distinct = [len(set(small.training.positives[client].tolist())) for client in range(40)]
    assert float(diagonal.sum()) == sum(min(4, count) for count in distinct)
    one = federated(method, small.training, cohort_samples=1)
    assert torch.equal(counts(one).diagonal(), diagonal), "the choice must not depend on the cohort"


def test_noise_has_the_calibrated_size(small):
    pytest.importorskip("dp_accounting")
    options = {"n_max": 5, "epsilon": 2.0}
    noisy = federated(FedGram(**options), small.training)
    clean = federated(FedGram(n_max=5), small.training)
    difference = (counts(noisy) - counts(clean)).triu()
    m = small.data.n_items
    std = float((difference.square().sum() / (m * (m + 1) / 2)).sqrt())
    said = noisy.diagnostics()
    assert std == pytest.approx(said["noise_std"], rel=0.1)
    assert said["noise_std"] == pytest.approx(noise_multiplier(2.0, 1e-5, 1) * 15**0.5)
    assert said["epsilon"] == pytest.approx(2.0, rel=0.02)
    assert "epsilon 2" in said["verdict"]


def test_two_releases_need_more_noise():
    pytest.importorskip("dp_accounting")
    assert noise_multiplier(1.0, 1e-5, 2) == pytest.approx(2**0.5 * noise_multiplier(1.0, 1e-5, 1), rel=0.01)
    assert spent_epsilon(10.0, 1e-5, 1) < spent_epsilon(5.0, 1e-5, 1)
    # The exact curve of the Gaussian mechanism (Balle and Wang 2018): epsilon 1, delta 1e-5 needs 3.73.
    assert noise_multiplier(1.0, 1e-5, 1) == pytest.approx(3.73, abs=0.01)


def test_epsilon_is_in_the_result(small):
    pytest.importorskip("dp_accounting")
    run = fedrec.train(FedGram(epsilon=5, n_max=10), small, device="cpu", progress=False)
    assert run.result.diagnostics["epsilon"] == pytest.approx(5, rel=0.02)


def test_bad_settings_are_one_sentence(small):
    with pytest.raises(ConfigError, match=r"epsilon needs a bound .* set n_max"):
        FedGram(epsilon=1)
    with pytest.raises(ConfigError, match=r"8.64e-05 GB for matrices of 60 x 60 items, but 1e-05 GB are allowed"):
        Simulation(FedGram(memory_gb=1e-5), small.training)
    Simulation(FedGram(memory_gb=1e-5, top_items=20), small.training)
    with pytest.raises(ConfigError, match="cannot be combined with a privacy stage"):
        fedrec.train(FedGram(), small, device="cpu", progress=False, privacy=Privacy())
