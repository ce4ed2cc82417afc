import json
from itertools import product

import numpy as np
import pytest
import torch
from scipy import signal, stats

import fedrec
from fedrec.errors import ConfigError
from fedrec.federation.payload import RowUpdate, Table
from fedrec.federation.privacy import SECRET, Privacy, PrivacyStage
from fedrec.federation.simulation import Simulation
from fedrec.federation.trainer import Setup
from fedrec.methods.fedem import FedEM
from fedrec.methods.fedmf import FedMF


def upload(scale=1.0):
    rows = torch.tensor([[1, 4], [0, 0]], dtype=torch.int32)
    values = torch.full((2, 2, 3), scale)
    values[1, 1] = 0
    return RowUpdate(rows, torch.tensor([2, 1]), values, n_items=6)


@pytest.mark.parametrize(("mechanism", "norm"), [("laplace", 1), ("gaussian", 2)])
def test_the_clipping_bound_holds_over_all_parts(mechanism, norm):
    stage = PrivacyStage(Privacy(mechanism=mechanism, clip=0.7, scale=0), seed=0)
    parts = {"items": upload(5.0), "net": torch.randn(2, 4)}
    out = stage.apply(parts, torch.tensor([0, 1]), 0)
    flat = torch.cat([out["items"].flatten(1), out["net"].flatten(1)], 1)
    assert torch.linalg.vector_norm(flat, ord=norm, dim=1).tolist() == pytest.approx([0.7, 0.7], rel=1e-5)
    small = PrivacyStage(Privacy(mechanism=mechanism, clip=1e6, scale=0), seed=0).apply(parts, torch.tensor([0, 1]), 0)
    assert torch.equal(small["items"], parts["items"].dense())


@pytest.mark.parametrize("reproducible", [False, True])
@pytest.mark.parametrize("scale", [0.3, 20.0])
@pytest.mark.parametrize(("mechanism", "law"), [("laplace", stats.laplace), ("gaussian", stats.norm)])
def test_the_noise_has_the_stated_law_and_scale(mechanism, law, scale, reproducible):
    stage = PrivacyStage(Privacy(mechanism=mechanism, clip=1.0, scale=scale, reproducible=reproducible), seed=1)
    noise = stage.apply({"x": torch.zeros(8, 50_000)}, torch.arange(8), 3)["x"].flatten().double().numpy() / scale
    # Noise from secrets is another one in every run of this test: limits are those that chance never meets.
    assert stats.kstest(noise, law.cdf).pvalue > 1e-7
    # Of n numbers, the mean absolute value (Laplace) and the mean square (Gaussian) say the scale with these errors.
    n = len(noise)
    found, error = (
        (np.abs(noise).mean(), 1 / np.sqrt(n)) if mechanism == "laplace" else (noise @ noise / n, np.sqrt(2 / n))
    )
    assert abs(found - 1) < 6 * error < 0.014
    assert abs(noise.mean()) < 6 * noise.std() / np.sqrt(n)


@pytest.mark.parametrize("reproducible", [False, True])
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_noise_is_independent_between_seeds_rounds_clients_and_parts(mechanism, reproducible):
    n, drawn = 20_000, []
    stages = [PrivacyStage(Privacy(mechanism=mechanism, scale=0.3, reproducible=reproducible), seed) for seed in (0, 1)]
    for stage, round in product(stages, (0, 1)):
        found = stage.apply({"a": torch.zeros(2, n), "b": torch.zeros(2, n)}, torch.tensor([0, 1]), round)
        drawn += [found[name][client] for name, client in product(("a", "b"), (0, 1))]
    correlation = np.corrcoef(torch.stack(drawn).numpy()) - np.eye(16)
    assert abs(correlation).max() < 7 / np.sqrt(n)


@pytest.mark.parametrize("reproducible", [False, True])
def test_noise_covers_untouched_rows_and_is_a_function_of_round_and_client_alone(reproducible):
    stage = PrivacyStage(Privacy(clip=1.0, scale=0.1, reproducible=reproducible), seed=0)
    first = stage.apply({"items": upload()}, torch.tensor([0, 1]), 0)["items"]
    assert bool((first != 0).all()), "noise on touched rows only would show which they are"
    assert torch.equal(first[1:], stage.apply({"items": _second(upload())}, torch.tensor([1]), 0)["items"])
    zero = PrivacyStage(Privacy(clip=1.0, scale=0), seed=0).apply({"items": upload()}, torch.tensor([0, 1]), 0)["items"]
    double = PrivacyStage(Privacy(clip=1.0, scale=0.2, reproducible=reproducible), seed=0)
    double.load_state({name: value.clone() for name, value in stage.state().items()})
    twice = double.apply({"items": upload()}, torch.tensor([0, 1]), 0)
    torch.testing.assert_close(twice["items"] - zero, 2 * (first - zero))


def test_a_round_that_is_repeated_with_other_numbers_brings_other_noise():
    """Under the same noise a server that asks twice would subtract one upload from the other."""
    stage, who, n = PrivacyStage(Privacy(clip=1.0, scale=0.1), seed=0), torch.tensor([0]), 5000
    ones = torch.zeros(1, n).index_fill(1, torch.tensor([7]), 1.0)
    one, same, other = (
        stage.apply({"x": value}, who, 0)["x"] for value in (torch.zeros(1, n), torch.zeros(1, n), ones)
    )
    assert torch.equal(one, same)
    assert abs(np.corrcoef(one[0], (other - ones)[0])[0, 1]) < 5 / np.sqrt(n)


def test_noise_does_not_follow_from_the_seed_unless_asked():
    zeros, who = {"x": torch.zeros(2, 500)}, torch.tensor([0, 1])
    for reproducible in (False, True):
        settings = Privacy(clip=1.0, scale=0.1, reproducible=reproducible)
        found = [PrivacyStage(settings, seed=0).apply(zeros, who, 0)["x"] for _ in range(2)]
        assert torch.equal(*found) == reproducible
    assert not PrivacyStage(Privacy(reproducible=True), seed=0).state()


def test_every_client_has_a_secret_of_its_own():
    stage = PrivacyStage(Privacy(), seed=0)
    stage.prepare(50)
    secrets = stage.state()["noise"].clone()
    assert secrets.shape == (50, SECRET)
    assert len(torch.unique(secrets, dim=0)) == 50
    stage.prepare(50)
    assert torch.equal(stage.state()["noise"], secrets), "drawn once"
    assert abs(secrets.double().mean() - 127.5) < 6 * 74 / len(secrets.flatten()) ** 0.5


def test_noise_of_a_run_follows_from_the_seed_only_on_request(small):
    everybody = torch.arange(40)
    for reproducible in (False, True):
        found = []
        for _ in range(2):
            stage = PrivacyStage(Privacy(clip=1.0, scale=0.5, reproducible=reproducible), 0)
            simulation = Simulation(FedMF(epochs=1), small.training, Setup(privacy=stage))
            simulation.round(0)
            found.append(simulation.scores(everybody))
        assert torch.equal(*found) == reproducible


def _second(update):
    return RowUpdate(update.rows[1:], update.counts[1:], update.values[1:], update.n_items)


def test_tables_are_clipped_against_what_the_server_knows():
    value, known = torch.randn(2, 6, 3), torch.randn(2, 6, 3)
    out = PrivacyStage(Privacy(clip=0.5, scale=0), 0).apply({"items": Table(value, known)}, torch.tensor([0, 1]), 0)
    change = out["items"].value - known
    assert change.flatten(1).abs().sum(1).tolist() == pytest.approx([0.5, 0.5], abs=1e-4)


@pytest.mark.parametrize(
    "method",
    [FedMF(epochs=1), FedEM(epochs=1, merge="static"), FedEM(epochs=1, variant="code")],
    ids=["fedmf", "static", "code"],
)
def test_another_history_moves_an_upload_by_at_most_twice_the_clip_in_every_round(small, method):
    """The sensitivity behind epsilon: a client's upload given what the server sent, whatever its data and its past."""
    clip, sent = 0.3, []

    class Spy(PrivacyStage):
        def apply(self, parts, clients, round):
            out = super().apply(parts, clients, round)
            for name, part in out.items():
                known = parts[name].known if isinstance(part, Table) else 0
                value = part.value if isinstance(part, Table) else part
                sent.append((value - known).flatten(1).abs().sum(1).max())
            return out

    simulation = Simulation(method, small.training, Setup(privacy=Spy(Privacy(clip=clip, scale=0), 0)))
    for number in range(3):
        simulation.round(number)
    assert len(sent) >= 3
    assert max(sent) <= clip * (1 + 1e-4)


def test_what_the_server_is_said_to_know_it_has_sent(small):
    """FedEM's uploads are measured against the download, or the common start where there was none."""
    method = FedEM(epochs=1, variant="code", agg_ratio=0.5)
    simulation = Simulation(method, small.training)
    for number in range(2):
        simulation.round(number)
    for clients in (torch.tensor([u]) for u in range(small.data.n_users)):
        payload = method.broadcast(simulation.task, simulation.server, clients)
        samples = simulation.sampler.draw(clients, negatives=4, seed=0, round=2)
        parts, _ = method.train(simulation.task, simulation.store.at(clients), payload, samples, 2)
        if parts:
            start = method.client_state(simulation.task, clients)["items"]
            assert torch.equal(parts["items"].known, payload.get("items", start))


@pytest.mark.parametrize("method", [FedMF(epochs=1), FedEM(epochs=1)], ids=["fedmf", "fedem"])
def test_private_state_is_never_uploaded_and_scoring_stays_noise_free(small, method, monkeypatch):
    plain, noisy = (
        Simulation(method, small.training, Setup(privacy=stage))
        for stage in (None, PrivacyStage(Privacy(clip=1.0, scale=10.0), 0))
    )
    sent, gather = [], type(method).gather

    def watched(self, task):
        gathering = gather(self, task)
        add = gathering.add

        def noted(upload):
            sent.append(set(upload.parts))
            add(upload)

        gathering.add = noted
        return gathering

    monkeypatch.setattr(type(method), "gather", watched)
    for simulation in (plain, noisy):
        simulation.round(0)
    assert sent
    assert all(names <= {"items"} for names in sent)
    everybody = torch.arange(small.data.n_users)
    for name in plain.store.tensors:
        assert torch.equal(plain.store.at(everybody)[name], noisy.store.at(everybody)[name]), name


def composed_laplace(once, uploads, delta):
    """Epsilon at ``delta`` of that many Laplace uploads of cost ``once`` each, from the distribution of the privacy loss.

    On neighbouring inputs the loss of one upload is ``once`` with probability 1/2, ``-once`` with exp(-once)/2, and in
    between has the density exp((loss - once)/2)/4; losses of several uploads add up.
    """
    steps = 2000
    grid = np.linspace(-once, once, 2 * steps + 1)
    edges = np.concatenate([[-once], (grid[1:] + grid[:-1]) / 2, [once]])
    mass = np.diff(np.exp((edges - once) / 2) / 2)
    mass[[0, -1]] += np.exp(-once) / 2, 1 / 2
    assert mass.sum() == pytest.approx(1)
    total = mass
    for _ in range(uploads - 1):
        total = signal.fftconvolve(total, mass)
    losses = np.linspace(-uploads * once, uploads * once, len(total))
    low, high = 0.0, uploads * once
    for _ in range(50):
        middle = (low + high) / 2
        spent = (total * (1 - np.exp(middle - losses)).clip(min=0)).sum()
        low, high = (middle, high) if spent > delta else (low, middle)
    return high


@pytest.mark.parametrize(("clip", "scale"), [(1.0, 2.0), (0.5, 2.0), (3.0, 0.25)])
def test_one_laplace_upload_costs_twice_the_clip_over_the_scale(clip, scale):
    stage = PrivacyStage(Privacy(clip=clip, scale=scale), seed=0)
    assert stage.epsilon(1) == 2 * clip / scale
    assert not stage.spends_delta(1)


@pytest.mark.parametrize("delta", [1e-5, 1e-2])
@pytest.mark.parametrize(("clip", "scale", "uploads"), [(1.0, 2.0, 2), (1.0, 2.0, 5), (0.5, 5.0, 5), (2.0, 40.0, 30)])
def test_laplace_uploads_compose_as_their_privacy_losses_add_up(clip, scale, uploads, delta):
    pytest.importorskip("dp_accounting")
    stage = PrivacyStage(Privacy(clip=clip, scale=scale, delta=delta), seed=0)
    expected = composed_laplace(2 * clip / scale, uploads, delta)
    assert stage.epsilon(uploads) == pytest.approx(expected, rel=5e-3, abs=2e-3)
    assert stage.spends_delta(uploads)
    assert f"(delta {delta:g})" in stage.words(uploads)


def test_large_laplace_budgets_are_plain_sums():
    stage = PrivacyStage(Privacy(clip=1.0, scale=0.001), seed=0)
    assert stage.epsilon(3) == pytest.approx(6000)
    assert not stage.spends_delta(3)


def exact_gaussian(noise, delta):
    """Epsilon at ``delta`` of Gaussian noise, in units of the sensitivity (Balle and Wang, 2018, Theorem 8)."""
    low, high = 0.0, 1e4
    for _ in range(100):
        middle = (low + high) / 2
        first = stats.norm.logcdf(0.5 / noise - middle * noise)
        second = middle + stats.norm.logcdf(-0.5 / noise - middle * noise)
        low, high = (middle, high) if np.exp(first) - np.exp(second) > delta else (low, middle)
    return high


@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9])
@pytest.mark.parametrize(("clip", "scale", "uploads"), [(1.0, 20.0, 1), (1.0, 20.0, 50), (0.5, 3.0, 7)])
def test_gaussian_epsilon_lies_between_the_exact_and_the_renyi_bound(clip, scale, uploads, delta):
    """k uploads with standard deviation s are one of s / sqrt(k); Renyi orders cost a / 2 times the squared inverse."""
    pytest.importorskip("dp_accounting")
    noise = scale / (2 * clip) / np.sqrt(uploads)
    orders = np.concatenate([np.linspace(1.01, 64, 5000), np.arange(65.0, 1000)])
    bound = orders / 2 / noise**2 + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1)
    found = PrivacyStage(Privacy(mechanism="gaussian", clip=clip, scale=scale, delta=delta), seed=0).epsilon(uploads)
    assert exact_gaussian(noise, delta) < found < 1.03 * bound.min()


def test_words_say_what_a_budget_is_worth():
    stage = PrivacyStage(Privacy(clip=1.0, scale=2.0), seed=0)
    assert stage.epsilon(0) == 0
    assert stage.words(1) == "epsilon 1"
    assert stage.describe(10)["epsilon_per_round"] == 1
    assert stage.describe(10)["epsilon_total"] == stage.epsilon(10)
    assert stage.describe(10)["most_uploads_of_a_client"] == 10
    assert "locally differentially private with epsilon" in stage.describe(10)["verdict"]
    many = PrivacyStage(Privacy(clip=1.0, scale=40.0), 0).describe(100)
    assert many["spends_delta"]
    assert "delta" in many["verdict"]
    assert "no meaningful guarantee" in PrivacyStage(Privacy(clip=1.0, scale=0.01), 0).describe(1)["verdict"]
    for useless in (Privacy(clip=None, scale=1.0), Privacy(clip=1.0, scale=0)):
        assert PrivacyStage(useless, 0).epsilon(5) is None
        assert not PrivacyStage(useless, 0).spends_delta(5)
        assert PrivacyStage(useless, 0).words(5) == "no privacy guarantee"
        assert "no guarantee" in PrivacyStage(useless, 0).describe(5)["verdict"]


def test_noise_from_the_seed_is_no_guarantee():
    stage = PrivacyStage(Privacy(clip=1.0, scale=2.0, reproducible=True), seed=0)
    assert stage.epsilon(3) is None
    assert not stage.spends_delta(3)
    assert stage.words(3) == "no privacy guarantee"
    assert stage.describe(3)["verdict"].startswith("no guarantee: the noise follows from the run's seed")
    assert stage.describe(3, ("so it is",))["notes"] == ["so it is"]


@pytest.mark.parametrize("rule", ["sum", "uniform", "size", "touched"])
def test_with_noise_rows_are_averaged_over_everybody_and_a_rule_that_would_not_be_says_so(small, rule):
    """``touched`` is then ``uniform`` in all but name, which its note says; nothing else is another rule."""
    method, everybody = FedMF(epochs=1, agg=rule), torch.arange(40)
    assert bool(method.privacy_notes()) == (rule == "touched")
    assert method.privacy_problem() is None
    found = []
    for made in (method, FedMF(epochs=1, agg="uniform")):
        stage = PrivacyStage(Privacy(clip=1.0, scale=0.1, reproducible=True), 0)
        simulation = Simulation(made, small.training, Setup(privacy=stage))
        simulation.round(0)
        found.append(simulation.scores(everybody))
    assert torch.allclose(*found, atol=1e-6) == (rule in ("uniform", "touched"))


@pytest.mark.parametrize(
    "made",
    [fedrec.create("fedmf", agg="change"), fedrec.create("fedncf", agg="change"), fedrec.create("fedfast")],
    ids=lambda made: made.name,
)
def test_a_rule_that_noise_would_decide_is_refused_with_what_to_choose(small, made):
    with pytest.raises(ConfigError, match="set agg to uniform, size or sum"):
        Simulation(made, small.training, Setup(privacy=PrivacyStage(Privacy(), 0)))


def test_methods_whose_rule_changes_say_so(small):
    for name, changes in (("fedmf", True), ("fedncf", True), ("colr", True), ("pfedrec", False), ("fedem", False)):
        result = fedrec.train(name, small, rounds=1, privacy=Privacy(scale=2.0), device="cpu", progress=False).result
        assert bool(result.privacy.notes) == changes, name


def test_a_run_reports_what_its_uploads_cost_everywhere(small, capsys, tmp_path):
    privacy = Privacy(clip=1.0, scale=2.0)
    fedrec.train(FedMF(epochs=1), small, rounds=3, out=tmp_path / "run", privacy=privacy, device="cpu")
    said = json.loads((tmp_path / "run" / "result.json").read_text())["privacy"]
    stage = PrivacyStage(privacy, 0)
    assert (said["epsilon_per_round"], said["epsilon_total"]) == (1, stage.epsilon(3))
    assert said["most_uploads_of_a_client"] == 3
    assert stage.words(3) in capsys.readouterr().err


def test_the_budget_is_that_of_the_client_that_sent_most(small):
    method, privacy = FedMF(epochs=1, participation=0.2), Privacy(clip=1.0, scale=2.0)
    run = fedrec.train(method, small, rounds=5, privacy=privacy, device="cpu", progress=False)
    task, sent = run.trainer.task, torch.zeros(40)
    for number in range(5):
        sent[method.participants(task, {}, number)] += 1
    most = int(sent.max())
    assert 1 < most < 5
    assert run.result.privacy.most_uploads_of_a_client == most
    assert run.result.privacy.epsilon_total == PrivacyStage(privacy, 0).epsilon(most)


def test_rounds_without_an_upload_cost_nothing(small):
    """All forty clients train in every round, four of them send."""
    simulation = Simulation(FedEM(epochs=1, merge="static", agg_ratio=0.1), small.training)
    sent = torch.zeros(40)
    for number in range(4):
        sent += simulation.server["uploads"]
        simulation.round(number)
    assert simulation.most_uploads == sent.max() < 4


def test_a_resumed_federation_has_the_same_budget_and_noise(small):
    def fresh():
        return Simulation(method, small.training, Setup(privacy=PrivacyStage(Privacy(clip=1.0, scale=0.5), 3)))

    method, everybody = FedMF(epochs=1, participation=0.3), torch.arange(40)
    whole, first, second = fresh(), fresh(), fresh()
    first.load_state(
        {name: value.clone() for name, value in whole.state().items()}
    )  # the same clients, so their secrets
    for number in range(4):
        whole.round(number)
    for number in range(2):
        first.round(number)
    second.load_state({name: value.clone() for name, value in first.state().items()})
    assert second.most_uploads == first.most_uploads > 0
    for number in (2, 3):
        second.round(number)
    assert second.most_uploads == whole.most_uploads > first.most_uploads
    assert torch.equal(second.scores(everybody), whole.scores(everybody))


def test_the_engine_tells_the_stage_the_round_and_the_clients(small):
    told = []

    class Spy(PrivacyStage):
        def apply(self, parts, clients, round):
            told.append((round, clients.tolist()))
            return super().apply(parts, clients, round)

    method = FedMF(epochs=1, participation=0.3)
    stage = Spy(Privacy(clip=1.0, scale=0.5), 0)
    simulation = Simulation(method, small.training, Setup(privacy=stage), cohort_samples=150)
    for number in range(3):
        simulation.round(number)
    assert len(told) > 3, "several cohorts"
    for number in range(3):
        who = sorted(client for round, clients in told if round == number for client in clients)
        assert who == method.participants(simulation.task, {}, number).tolist()
