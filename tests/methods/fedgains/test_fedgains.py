import numpy as np
import pytest
import torch

import fedrec
from fedrec.data import Interactions
from fedrec.errors import ConfigError
from fedrec.federation.simulation import Simulation
from fedrec.federation.trainer import Setup
from fedrec.methods.fedgains import FedGains
from fedrec.methods.fedgains.config import RANKINGS, without
from fedrec.methods.fedgains.gains import log_ranks
from fedrec.methods.fedslist import FedSlist
from fedrec.parts.order import ONE as ONE_UNIT
from fedrec.parts.order import add_histories
from fedrec.testing import MethodSuite

EVERYBODY = torch.arange(40)
SHAPE = {"lam": 30, "delta_p": 2, "delta_f": 1, "a": 0.5, "delta_q": 3}
ONE = (1.0, 0.0, 0.0, 0.0, 0.0, 0.0)


class TestFedGains(MethodSuite):
    method = FedGains
    options = {"lam": 30, "a": 1, "gain_rounds": 2, "sample": 200}
    rounds = 4
    floor = 0.6
    deterministic = True  # in the first round, before any clients are drawn


def federated(view, kind=FedGains, seed=0, **options):
    simulation = Simulation(kind(**SHAPE | options), view, Setup(seed))
    for number in range(simulation.method.rounds):
        simulation.round(number)
    return simulation


def order(scores):
    """Items from best to worst, where no two are equal."""
    return scores.argsort(1, descending=True)


def test_one_gain_alone_ranks_as_fedslist(small):
    whole = federated(small.training, FedSlist, keep=None).scores(EVERYBODY)
    found = federated(small.training, keep=None, start=ONE, gain_rounds=0, personal=0).scores(EVERYBODY)
    assert torch.equal(order(found), order(whole))


def test_gains_that_may_not_differ_are_the_shared_ones(small):
    free, close, shared = (federated(small.training, personal=p) for p in (1, 1e-9, 0))
    for simulation in (free, close):
        simulation.server["mean"] = shared.server["mean"]
    assert torch.allclose(close.scores(EVERYBODY), shared.scores(EVERYBODY), atol=1e-4)
    assert not torch.allclose(free.scores(EVERYBODY), shared.scores(EVERYBODY), atol=0.05)


def test_rounds_move_mean_and_spread_as_the_moments_of_clients_say(small):
    simulation = Simulation(FedGains(**SHAPE, gain_rounds=1), small.training)
    simulation.round(0)
    method, before = simulation.method, dict(simulation.server)
    history = simulation.clients.store.at(EVERYBODY)["history"]
    held = method.config.held_back(history)
    model = {name: value for name, value in before.items() if name != "stage"}
    gains, around = method.config.picks(model, history, held).fitted(before["mean"], before["spread"])[:2]
    simulation.round(1)
    mean = gains.mean(0)
    spread = around.mean(0) + (gains - mean).T @ (gains - mean) / len(gains)
    assert torch.allclose(simulation.server["mean"], mean, atol=1e-6)
    assert torch.allclose(simulation.server["spread"], spread, atol=2e-4)
    assert not torch.allclose(mean, before["mean"], atol=0.01)


def test_how_far_gains_may_differ_matters_when_scoring_only(small):
    one, other = (federated(small.training, personal=p) for p in (1, 3))
    for name, value in one.server.items():
        assert torch.equal(other.server[name], value), name
    assert not torch.allclose(one.scores(EVERYBODY), other.scores(EVERYBODY), atol=0.05)


def test_shared_gains_are_the_most_likely_ones_for_all_picks_together(small):
    found = federated(small.training, personal=0, gain_rounds=6)
    history = found.clients.store.at(EVERYBODY)["history"]
    config, model = found.method.config, {name: value for name, value in found.server.items() if name != "stage"}
    picks = config.picks(model, history, config.held_back(history))
    value, slope, _ = (part.sum(0) for part in picks.likelihood(model["mean"].float().expand(40, -1)))
    assert float(slope.abs().max()) < 0.01
    start = torch.tensor(config.start)
    assert float(picks.likelihood(start.expand(40, -1))[0].sum()) < float(value) - 1


def test_weights_for_the_gains_know_nothing_of_the_items_they_are_fitted_on(small):
    config = FedGains(**SHAPE).config
    view = small.training
    ahead = Simulation(FedGains(**SHAPE), view)
    ahead.round(0)
    history = ahead.clients.store.at(EVERYBODY)["history"]
    cut = without(history, config.held_back(history))
    values = torch.cat([row[row >= 0] for row in cut]).numpy()
    offsets = np.append(0, (cut >= 0).sum(1).cumsum(0).numpy())
    lists = type(view.history)(offsets.astype(np.int64), values.astype(np.int32))
    prefix = type(view)(view.n_clients, view.n_items, lists, view.excluded, lists)
    plain = federated(prefix, FedSlist)
    for name in ("values", "kept", "scale"):
        assert torch.equal(ahead.server[f"before.next.{name}"], plain.server[name])


def test_a_pick_is_among_items_not_had_before_it_which_are_ranked_with_what_was(small):
    method = FedGains(**SHAPE)
    ahead = Simulation(method, small.training)
    ahead.round(0)
    history = ahead.clients.store.at(EVERYBODY)["history"]
    held = method.config.held_back(history)
    model = {name: value for name, value in ahead.server.items() if name != "stage"}
    picks = method.config.picks(model, history, held)
    lengths = (history >= 0).sum(1)
    for client in (0, 17, 39):
        for pick in range(int(held[client])):
            place = int(lengths[client] - held[client] + pick)
            assert int(picks.items[client, pick]) == int(history[client, place])
            past = history[client, :place].long()
            assert not bool(picks.open[client, pick, past].any())
            assert bool(picks.open[client, pick].sum() == small.data.n_items - place)
            alone = method.config.features(model, "before", history[client : client + 1, :place])
            assert torch.equal(picks.features[client, pick], alone[0])


def test_the_rankings_are_those_of_the_definition(small):
    found = federated(small.training, gain_rounds=0, keep=None, recent=4)
    view, m = small.training, small.data.n_items
    plain = federated(view, FedSlist, keep=None)
    past, after = (torch.zeros(m, m, dtype=torch.int64) for _ in range(2))
    history = found.clients.store.at(EVERYBODY)["history"]
    add_histories(past, after, history, (history >= 0).sum(1), found.method.config.decay(True))
    inverse = torch.linalg.inv((past.triu() + past.triu(1).T).double() / ONE_UNIT + SHAPE["lam"] * torch.eye(m))
    weights = inverse @ (after + after.T).double() / ONE_UNIT / 2
    weights -= inverse * (weights.diagonal() / inverse.diagonal())
    had = torch.zeros(40, m, dtype=torch.float64)
    counts, now = torch.zeros(m), torch.zeros(m)
    for client in range(40):
        own = torch.from_numpy(view.history[client].copy()).long()
        had[client, own] = 1
        counts[own] += 1
        now[own[-4:]] += 1
    model = {name: value for name, value in found.server.items() if name != "stage"}
    features = found.method.config.features(model, "now", history)
    assert torch.equal(order(features[..., 0]), order(plain.scores(EVERYBODY)))
    assert torch.allclose(model["now.alike.weights"].double(), weights, atol=1e-4)
    alike = torch.exp(-features[..., 3]) - torch.exp(-log_ranks((had @ weights).float()))
    assert float((alike.abs() > 1).float().mean()) < 0.01  # rounding may swap items that are nearly equal
    for column, expected in ((4, counts), (5, now)):
        assert torch.equal(features[..., column], log_ranks(expected[None]).expand(40, -1))


def timeless(split):
    data = split.data
    bare = Interactions(data.users, data.items, None, None, data.user_ids, data.item_ids, "bare")
    return split.protocol.split(bare, seed=0)


def test_data_without_time_are_scored_as_fedslist_scores_them(small):
    split = timeless(small)
    assert torch.equal(
        federated(split.training).scores(EVERYBODY), federated(split.training, FedSlist).scores(EVERYBODY)
    )
    run = fedrec.train(FedGains(lam=20), split, progress=False)
    assert run.result.diagnostics["order"].startswith("none")
    assert "gains" not in run.result.diagnostics


def test_somebody_new_gets_gains_of_their_own(small):
    found = federated(small.training)
    history = found.clients.store.at(EVERYBODY)["history"]
    assert torch.equal(found.scores_from(history), found.scores(EVERYBODY))


def test_a_sample_of_clients_looks_for_gains_and_all_add_up(small):
    simulation = Simulation(FedGains(**SHAPE, gain_rounds=2, sample=7), small.training)
    assert [simulation.round(number).clients for number in range(4)] == [40, 7, 7, 40]
    other = Simulation(FedGains(**SHAPE, gain_rounds=2, sample=7), small.training, Setup(1))
    drawn = [s.method.participants(s.task, s.server, 1).tolist() for s in (simulation, other)]
    assert drawn[0] != drawn[1]


def test_the_result_says_the_gains(small):
    run = fedrec.train(FedGains(**SHAPE), small, progress=False)
    said = run.result.diagnostics
    assert list(said["gains"]) == list(said["differ"]) == list(RANKINGS)
    assert run.result.history_at_test == "train"


def test_gains_must_be_as_many_as_rankings():
    with pytest.raises(ConfigError, match="give 6 gains"):
        FedGains(start=[1.0, 2.0])


def test_a_privacy_stage_is_refused(small):
    with pytest.raises(ConfigError, match="no noise for its sums"):
        fedrec.train(FedGains(), small, privacy=fedrec.Privacy(), progress=False)
