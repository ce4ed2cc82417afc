import numpy as np
import pytest
import torch

import fedrec
from fedrec.data import Interactions
from fedrec.errors import ConfigError
from fedrec.federation.simulation import Simulation
from fedrec.federation.trainer import Setup
from fedrec.methods.central.ease import EASE
from fedrec.methods.central.slist import Slist
from fedrec.methods.fedslist import FedSlist
from fedrec.testing import MethodSuite

EVERYBODY = torch.arange(40)
SHAPE = {"lam": 30, "delta_p": 2, "delta_f": 1, "a": 0.5, "delta_q": 3}
PLAIN = SHAPE | {"keep": None}


class TestFedSlist(MethodSuite):
    method = FedSlist
    options = {"lam": 30, "a": 1, "delta_q": None}
    rounds = 1
    floor = 0.6
    deterministic = True


class TestKept(MethodSuite):
    """Few weights of eight bits, and a history cut short."""

    method = FedSlist
    options = {"lam": 30, "a": 1, "keep": 20, "bits": 8, "n_max": 30}
    rounds = 1
    floor = 0.4
    deterministic = True


class TestProjected(MethodSuite):
    """Few directions."""

    method = FedSlist
    options = {"lam": 30, "a": 1, "delta_q": None, "rank": 12}
    rounds = 3
    floor = 0.5
    deterministic = True  # after one round, in which nothing is published yet


class TestSlist(MethodSuite):
    method = Slist
    options = {"lam": 30, "a": 1, "delta_q": None}
    rounds = 1
    floor = 0.6
    deterministic = True
    federated = False


def federated(view, **options):
    simulation = Simulation(FedSlist(**options), view, cohort_samples=64)
    for number in range(simulation.method.rounds):
        simulation.round(number)
    return simulation


def centralised(method, view):
    trainer = method.trainer(view, Setup(0))
    trainer.round(0)
    return trainer


def by_definition(view, *, delta_p, delta_f, a, lam, delta_q, free=False):
    """Scores of everybody from the sums as they are written down, in float64."""
    m = view.n_items
    past, after, queries = np.zeros((m, m)), np.zeros((m, m)), np.zeros((view.n_clients, m))
    for client in range(view.n_clients):
        own = view.history[client]
        length, x = len(own), np.zeros(m)
        x[own] = 1
        past += a * np.outer(x, x)
        after += a * np.outer(x, x)
        for t in range(1, length):
            p, f = np.zeros(m), np.zeros(m)
            for j, item in enumerate(own, 1):
                if j <= t:
                    p[item] = np.exp(-(t - j) / delta_p)
                else:
                    f[item] = np.exp(-(j - t - 1) / delta_f)
            past += np.outer(p, p)
            after += np.outer(p, f)
        for j, item in enumerate(own, 1):
            queries[client, item] = np.exp(-(length - j) / delta_q)
    inverse = np.linalg.inv(past + lam * np.eye(m))
    weights = inverse @ after
    if not free:
        weights -= inverse * (np.diag(weights) / np.diag(inverse))
    return torch.from_numpy(queries @ weights)


def test_scores_are_those_of_the_definition(small):
    found = federated(small.training, **PLAIN)
    assert torch.allclose(found.scores(EVERYBODY).double(), by_definition(small.training, **SHAPE), atol=2e-4)
    assert float(found.server["weights"].diagonal().abs().max()) == 0


def test_it_is_the_centralised_model_to_the_last_bit(small):
    found, expected = federated(small.training, **PLAIN), centralised(Slist(**PLAIN), small.training)
    assert torch.equal(found.server["weights"], expected.model["weights"])
    assert torch.equal(found.scores(EVERYBODY), expected.scores(EVERYBODY))


def test_without_order_it_is_ease(small):
    ease = centralised(EASE(lam=20), small.training).scores(EVERYBODY)
    plain = federated(small.training, lam=20, order="none", keep=None).scores(EVERYBODY)
    # The part that knows no order outweighs the other one as it grows, with its penalty.
    much = federated(small.training, lam=20 * 4096, a=4096, delta_q=None, keep=None).scores(EVERYBODY)
    assert torch.allclose(plain, ease, atol=1e-5)
    assert torch.allclose(much, ease, atol=5e-3)
    assert not torch.allclose(federated(small.training, **PLAIN).scores(EVERYBODY), ease, atol=0.05)


def timeless(split):
    data = split.data
    bare = Interactions(data.users, data.items, None, None, data.user_ids, data.item_ids, "bare")
    return split.protocol.split(bare, seed=0)


def test_data_without_time_have_no_order(small):
    split = timeless(small)
    assert split.training.history is None
    ease = centralised(EASE(lam=20), split.training).scores(EVERYBODY)
    assert torch.allclose(federated(split.training, **PLAIN | {"lam": 20}).scores(EVERYBODY), ease, atol=1e-5)
    run = fedrec.train(FedSlist(lam=20), split, progress=False)
    assert run.result.diagnostics["order"].startswith("none: the data have no time")
    assert fedrec.train(FedSlist(), small, progress=False).result.diagnostics["order"] == "time"


def test_the_order_of_a_history_matters(small):
    view = small.training
    backwards = type(view)(view.n_clients, view.n_items, view.positives, view.excluded, reverse(view.history))
    assert not torch.allclose(
        federated(view, **PLAIN).server["weights"], federated(backwards, **PLAIN).server["weights"], atol=0.05
    )


def reverse(lists):
    values = np.concatenate([lists[client][::-1] for client in range(len(lists))])
    return type(lists)(lists.offsets, values)


def test_all_kept_weights_are_all_weights_and_few_come_near(small):
    whole = federated(small.training, **PLAIN).scores(EVERYBODY)
    errors = [
        float((federated(small.training, **SHAPE, keep=keep, bits=bits).scores(EVERYBODY) - whole).abs().mean())
        for keep, bits in ((60, 32), (60, 16), (60, 8), (12, 32), (3, 32))
    ]
    assert errors[0] < 1e-6 < errors[1] < errors[2] < errors[3] < errors[4]


def test_kept_scores_without_kernels(small, monkeypatch):
    options = PLAIN | {"keep": 7}
    compiled = federated(small.training, **options)
    monkeypatch.setenv("FEDREC_KERNELS", "off")
    reference = federated(small.training, **options)
    for name, value in compiled.server.items():
        assert torch.equal(value, reference.server[name]), name
    assert torch.allclose(compiled.scores(EVERYBODY), reference.scores(EVERYBODY), atol=1e-6)


def test_bytes_are_those_of_a_dense_sum_up_and_of_what_is_kept_down(small):
    m = small.data.n_items
    report = Simulation(FedSlist(keep=None), small.training).round(0)
    assert report.bytes_up == 40 * 4 * (m * (m + 1) // 2 + m * m)
    assert report.bytes_down == 40 * (4 * m * m + 1)
    simulation = Simulation(FedSlist(n_max=8), small.training)
    sizes = np.minimum(small.training.positives.counts, 8)
    found = simulation.diagnostics()["bytes_up_without_zeros"]
    assert found["mean"] == pytest.approx(8 * np.mean(sizes * (sizes + 1) / 2 + sizes**2))
    assert found["largest"] == 8 * (36 + 64)
    kept = Simulation(FedSlist(keep=10, bits=8), small.training).round(0)
    assert kept.bytes_down == 40 * (m * 10 * (1 + 2) + 4 * m + 1)


def test_only_the_newest_items_are_contributed(small):
    view = small.training
    cut = np.concatenate([view.history[client][-4:] for client in range(view.n_clients)])
    owners = np.repeat(np.arange(view.n_clients), np.minimum(view.history.counts, 4))
    shorter = type(view)(
        view.n_clients, view.n_items, view.positives, view.excluded, type(view.history).build(owners, cut, 40)
    )
    found, expected = federated(view, **PLAIN, n_max=4), federated(shorter, **PLAIN)
    assert torch.equal(found.server["weights"], expected.server["weights"])
    assert not torch.equal(found.scores(EVERYBODY), expected.scores(EVERYBODY)), "it scores with all of them"


def test_noise_is_calibrated_to_what_a_client_can_change(small):
    pytest.importorskip("dp_accounting")
    from fedrec.parts.gaussian import noise_multiplier

    options = PLAIN | {"n_max": 5, "epsilon": 2.0}
    clip = FedSlist(**PLAIN).config.decay(True).norms(5)[-1]
    simulation = federated(small.training, **options)
    said = simulation.diagnostics()
    assert said["noise_std"] == pytest.approx(clip * noise_multiplier(2.0, 1e-5, 1), rel=1e-5)
    assert said["epsilon"] == pytest.approx(2.0, rel=0.02)
    clean = federated(small.training, **PLAIN, n_max=5).server["weights"]
    drawn = [federated(small.training, **options | {"epsilon": e}).server["weights"] for e in (2.0, 2e4)]
    assert float((drawn[1] - clean).abs().max()) < 0.05 < float((drawn[0] - clean).abs().max())
    with pytest.raises(ConfigError, match="n_max"):
        FedSlist(epsilon=1)


def test_a_smaller_clip_means_less_noise(small):
    pytest.importorskip("dp_accounting")
    wide, tight = (federated(small.training, **PLAIN, n_max=8, epsilon=3, clip=c).diagnostics() for c in (None, 1.0))
    assert wide["noise_std"] > 3 * tight["noise_std"]


def test_all_directions_are_the_whole_model_with_a_free_diagonal(small):
    found = federated(small.training, **SHAPE, rank=1000).scores(EVERYBODY)
    assert torch.allclose(found.double(), by_definition(small.training, **SHAPE, free=True), atol=1e-3)


def test_more_directions_and_a_second_look_come_nearer(small):
    whole = by_definition(small.training, **SHAPE, free=True)
    tries = ({"rank": 4, "passes": 1}, {"rank": 4}, {"rank": 12}, {"rank": 30})
    found = [federated(small.training, **SHAPE, **less).scores(EVERYBODY) for less in tries]
    errors = [float((scores.double() - whole).abs().mean()) for scores in found]
    assert errors[0] > errors[1] > errors[2] > errors[3] > 1e-3


def test_directions_of_data_without_time_are_those_of_pairs(small):
    view = timeless(small).training
    counts = np.zeros((40, 60))
    counts[view.positives.owners, view.positives.values] = 1
    pairs = counts.T @ counts
    expected = counts @ np.linalg.solve(pairs + 20 * np.eye(60), pairs)
    found = federated(view, lam=20, rank=60).scores(EVERYBODY)
    assert np.allclose(found.numpy(), expected, atol=1e-3)


def test_bytes_of_few_directions(small):
    simulation = Simulation(FedSlist(rank=5), small.training)
    reports = [simulation.round(number) for number in range(3)]
    assert [report.bytes_up for report in reports] == [40 * 4 * k for k in (60 * 5, 60 * 5, 15 + 25)]
    assert [report.bytes_down for report in reports] == [40, 40 * (4 * (60 * 5 + 25) + 1), 40 * (4 * (60 * 5 + 25) + 1)]
    with pytest.raises(ConfigError, match="epsilon or rank"):
        FedSlist(rank=5, epsilon=1, n_max=5)


def test_both_are_shipped_with_the_same_settings():
    for protocol in ("honest", "paper"):
        for data in ("ml-100k", "ml-1m", "filmtrust", "demo"):
            one, other = (fedrec.create(name, protocol=protocol, data=data) for name in ("fedslist", "slist"))
            shared = type(other.config).model_fields
            assert {k: getattr(one.config, k) for k in shared} == {k: getattr(other.config, k) for k in shared}


def test_repeated_rows_without_time_count_once():
    rows = [(u, (3 * u + k) % 25) for u in range(20) for k in (0, 1, 2, 3, 3, 4, 5, 6, 7, 7, 8, 9)]
    frame = {"user": [u for u, _ in rows], "item": [i for _, i in rows]}
    view = fedrec.PAPER.with_options(candidates=5).split(fedrec.from_frame(frame)).training
    assert len(view.positives.values) > len(np.unique(view.positives.owners * 25 + view.positives.values))
    everybody = torch.arange(view.n_clients)
    ease = centralised(EASE(lam=20), view).scores(everybody)
    assert torch.allclose(federated(view, lam=20, keep=None).scores(everybody), ease, atol=1e-5)
