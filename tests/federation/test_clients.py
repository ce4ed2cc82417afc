"""What the engine does with any method: it is handed what is its own, and what it returns is counted and checked."""

import math

import pytest
import torch

import fedrec
from fedrec.errors import ConfigError, FedrecError
from fedrec.federation import clients as engine
from fedrec.federation.config import PartialConfig, SampledConfig
from fedrec.federation.method import SumMethod
from fedrec.federation.simulation import Simulation
from fedrec.federation.trainer import Setup

N, M = 40, 60
EVERYBODY = torch.arange(N)


class Config(SampledConfig, PartialConfig):
    """Of the method below."""


class Plain(SumMethod):
    """Counts rounds, and remembers all it was given."""

    name, title, Config = "plain", "a method", Config

    def __init__(self, config=None, **options):
        super().__init__(config, **options)
        self.seen, self.turns, self.labels, self.loss, self.wide = [], 1, False, None, 0

    def server_state(self, task):
        return {"rounds": torch.zeros(1), "table": torch.zeros(M, 3)}

    def client_state(self, task, clients):
        return {"own": clients[:, None].float().expand(-1, 2), "visits": torch.zeros(len(clients), dtype=torch.int64)}

    def own_data(self, view, clients):
        return {"first": torch.tensor([view.positives[client][0] for client in clients.tolist()])}

    def blocks(self, task):
        return self.turns

    def participants(self, task, server, round):
        return (
            super().participants(task, server, round)
            if self.turns == 1
            else EVERYBODY[round % self.turns :: self.turns]
        )

    def kinds(self, task, server, clients):
        return clients % 3 if self.labels else None

    def broadcast(self, task, server, clients):
        assert not self.labels or len({client % 3 for client in clients.tolist()}) == 1
        return {"rounds": server["rounds"].expand(len(clients), 1)}

    def train(self, task, private, payload, samples, round):
        self.seen.append((samples, round, payload["rounds"][0].item()))
        private["visits"] = private["visits"] + 1
        loss = samples.clients.float() if self.loss is None else self.loss(samples.clients)
        return {"x": torch.ones(len(samples.clients), 5), "y": samples.clients.double()}, loss

    def contribute(self, task, upload, total):
        total.add("x", upload.parts["x"].sum(0))
        total.add("weights", upload.weights.sum())
        assert upload.weights.tolist() == task.counts[upload.clients].tolist()

    def step(self, task, server, total, round):
        return server | {"rounds": server["rounds"] + 1}

    def scores(self, task, private, payload):
        return (private["own"][:, :1] + payload["rounds"]).expand(-1, M + self.wide)

    @property
    def views(self):
        return ("minus",)

    def view_scores(self, task, view, private, payload):
        return -self.scores(task, private, payload)

    def diagnostics(self, task, server, ledger):
        return {"rounds": int(server["rounds"]), "visits": int(ledger.visits.sum())}

    def client_groups(self, task):
        return {"three": torch.arange(3)}


def simulated(small, method=None, rounds=0, **options):
    simulation = Simulation(method or Plain(), small.training, **options)
    for number in range(rounds):
        simulation.round(number)
    return simulation


def test_a_round_hands_every_client_its_own_and_counts_what_it_sends(small):
    method = Plain(negatives=3)
    simulation = simulated(small, method, setup=Setup(seed=6), cohort_samples=200)
    report = simulation.round(0)
    simulation.round(1)
    assert sorted(
        client for samples, round, _ in method.seen if round == 0 for client in samples.clients.tolist()
    ) == list(range(N))
    assert {(round, sent) for _, round, sent in method.seen} == {(0, 0.0), (1, 1.0)}
    for samples, round, _ in method.seen:
        expected = simulation.sampler.draw(samples.clients, negatives=3, seed=6, round=round)
        assert torch.equal(samples.items, expected.items)
        assert (samples.seed, samples.round) == (6, round)
        assert len(samples.clients) * samples.items.shape[1] <= 200 or len(samples.clients) == 1
    assert (report.clients, report.bytes_down, report.bytes_up) == (N, N * 4, N * (5 * 4 + 8))
    assert report.loss == pytest.approx((N - 1) / 2), "the mean over clients, whatever their cohorts"
    assert set(report.seconds) == {"sampling", "training", "aggregation"}
    assert all(0 < seconds < 60 for seconds in report.seconds.values())
    assert simulation.store.at(EVERYBODY)["visits"].tolist() == [2] * N
    assert simulation.diagnostics() == {"rounds": 2, "visits": 2 * N}
    assert simulation.client_groups()["three"].tolist() == [0, 1, 2]
    assert simulation.most_uploads == 2


def test_state_is_the_methods_and_what_clients_keep_of_their_data(small):
    simulation = simulated(small)
    assert simulation.store.at(EVERYBODY)["own"][:, 0].tolist() == list(range(N))
    assert simulation.store.at(EVERYBODY)["first"].tolist() == [int(small.training.positives[c][0]) for c in range(N)]
    assert simulation.private_bytes == simulation.store.nbytes == N * (2 * 4 + 8 + 4)
    assert simulation.client_order.tolist() == sorted(range(N), key=lambda c: -small.training.positives.counts[c])
    assert set(simulation.state()) == {
        *("clients.own", "clients.visits", "clients.first", "server.rounds", "server.table"),
        *(f"ledger.{name}" for name in simulation.ledger.state()),
    }


@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize("most", [1, 7, 1000])
def test_scores_and_views_are_of_the_clients_asked_for_in_their_order(small, labels, most):
    method = Plain()
    method.labels = labels
    simulation = simulated(small, method, rounds=2)
    simulation.clients.most = most
    who = torch.tensor([5, 39, 0, 7, 6, 3])
    assert simulation.views == ("minus",)
    assert simulation.scores(who)[:, 0].tolist() == [client + 2 for client in who.tolist()]
    assert simulation.scores(who, "minus")[:, 9].tolist() == [-client - 2 for client in who.tolist()]
    assert simulation.scores(who).shape == (6, M)


def test_blocks_of_a_round_are_rounds_of_their_own_for_the_method(small):
    method = Plain()
    method.turns = 4
    simulation = simulated(small, method)
    reports = [simulation.round(number) for number in (0, 1)]
    assert sorted({round for _, round, _ in method.seen}) == list(range(8))
    assert [report.clients for report in reports] == [N, N]
    assert [report.loss for report in reports] == pytest.approx([(N - 1) / 2] * 2)
    assert simulation.diagnostics()["rounds"] == 8


def test_the_loss_of_unequal_blocks_is_the_mean_over_clients(small):
    method = Plain()
    method.turns = 3  # blocks of 14, 13 and 13
    assert simulated(small, method).round(0).loss == pytest.approx((N - 1) / 2)


def test_divergence_names_the_first_client_and_the_round_as_a_run_counts(small):
    method = Plain()
    method.turns, method.loss = 2, lambda clients: torch.where(clients == 17, math.inf, 1.0)
    simulation = simulated(small, method)
    with pytest.raises(FedrecError, match=r"^training diverged in round 6: the loss of client 17 is not finite; check"):
        simulation.round(5)


def test_a_round_of_nobody_has_no_loss(small):
    method = Plain()
    method.participants = lambda task, server, round: torch.zeros(0, dtype=torch.int64)
    report = simulated(small, method).round(0)
    assert (report.clients, report.bytes_up, report.bytes_down) == (0, 0, 0)
    assert math.isnan(report.loss)


def test_what_an_arrow_returns_is_checked(small):
    method = Plain()
    method.loss = lambda clients: torch.zeros(len(clients), 1)
    with pytest.raises(
        TypeError, match=r"^plain: train returned losses of shape \[\d+, 1\], not \[\d+\]; every client has"
    ):
        simulated(small, method).round(0)
    method = Plain()
    method.wide = 1
    simulation = simulated(small, method)
    with pytest.raises(
        TypeError, match=r"^plain: scores returned scores of shape \[3, 61\], not \[3, 60\]; every client"
    ):
        simulation.scores(torch.arange(3))


def test_a_saved_state_is_continued_and_copied(small):
    first, second = simulated(small, rounds=3), simulated(small)
    saved = first.state()
    second.load_state(saved)
    first.round(3)
    saved["server.rounds"] += 100
    saved["clients.visits"] += 100
    assert second.server["rounds"].item() == 3
    assert second.store.at(EVERYBODY)["visits"].tolist() == [3] * N
    assert second.diagnostics() == {"rounds": 3, "visits": 3 * N}


@pytest.mark.parametrize(("have", "fits"), [(N * 20 + 1000, True), (N * 20 + 999, False)])
def test_state_must_fit_where_it_is_kept_in_memory(small, monkeypatch, tmp_path, have, fits):
    monkeypatch.setattr(engine, "available", lambda device: have)
    monkeypatch.setattr(
        Plain, "server_bytes", lambda self, clients, items, private: 1000 * ((clients, private) == (N, N * 20))
    )
    if not fits:
        with pytest.raises(
            ConfigError, match=r"^plain needs about 0.0 GB for its state, but 0.0 GB are free on cpu; lower"
        ):
            simulated(small)
    else:
        simulated(small)
    simulated(small, setup=Setup(store_folder=tmp_path))


def test_what_cannot_be_a_federation_is_refused(small, monkeypatch):
    with pytest.raises(FedrecError, match="ease is centralised and cannot run as a federation"):
        Simulation(fedrec.create("ease"), small.training)
    monkeypatch.setattr(Plain, "privacy_problem", lambda self: "it counts")
    simulated(small)
    with pytest.raises(ConfigError, match=r"^plain cannot be combined with a privacy stage: it counts"):
        simulated(small, setup=Setup(privacy=fedrec.federation.privacy.PrivacyStage(fedrec.Privacy(), 0)))


class Remembering(Plain):
    """Scores with how many items a client has, and how many came later."""

    folds_in = explains = True

    def client_state(self, task, clients):
        numbers = {"items": torch.zeros(len(clients), 1), "came": torch.zeros(len(clients), 1)}
        return super().client_state(task, clients) | numbers

    def own_data(self, view, clients):
        counts = torch.from_numpy(view.positives.counts)[clients]
        assert view.history is not None, "these data have time"
        assert len(view.history) == view.n_clients
        return {"items": counts[:, None].float()}

    def fold_in(self, task, private, later):
        return {"came": (later >= 0).sum(1, keepdim=True).float() * 100 + private["came"]}

    def scores(self, task, private, payload):
        return (private["items"] + private["came"] + payload["rounds"]).expand(-1, M + self.wide)

    def contributions(self, task, private, payload, history, items):
        return (private["came"][:, :, None] + history[:, :, None] + 1000 * items[:, None, :])[:, :, self.wide :]


@pytest.mark.parametrize("most", [1, 2, 1000])
@pytest.mark.parametrize("labels", [False, True])
def test_items_that_came_later_count_in_scores_and_are_not_kept(small, labels, most):
    method = Remembering()
    method.labels = labels
    simulation = simulated(small, method)
    simulation.clients.most = most
    who, later = torch.tensor([5, 39, 0]), torch.tensor([[1, 2], [3, -1], [-1, -1]])
    counts = small.training.positives.counts[[5, 39, 0]].tolist()
    assert simulation.scores(who, later=later)[:, 0].tolist() == [counts[0] + 200, counts[1] + 100, counts[2]]
    assert simulation.scores(who, "minus", later)[:, 3].tolist() == [-counts[0] - 200, -counts[1] - 100, -counts[2]]
    assert simulation.scores(who)[:, 0].tolist() == counts
    assert not simulation.store.tensors["came"].any()
    assert simulation.folds_in


def test_clients_that_were_not_there_are_scored_by_their_items_alone(small):
    simulation = simulated(small, Remembering(), rounds=2)
    history = torch.tensor([[4, 5, -1], [7, -1, -1]])
    before = {name: value.clone() for name, value in simulation.state().items()}
    found = simulation.scores_from(history)
    assert found.shape == (2, M)
    assert found[:, 0].tolist() == [202, 102], "two items and one, and two rounds of the server; none of anybody's"
    asked = torch.tensor([[1, 2], [3, 0]])
    parts = simulation.contributions(history, asked)
    assert parts[0].tolist() == [[1204, 2204], [1205, 2205], [1199, 2199]]
    assert parts[1, 0].tolist() == [3107, 107]
    assert all(torch.equal(value, before[name]) for name, value in simulation.state().items())


def test_more_newcomers_than_clients_are_scored_too(small):
    simulation = simulated(small, Remembering())
    assert simulation.scores_from(torch.zeros(2 * N, 1, dtype=torch.int64))[:, 0].tolist() == [100] * 2 * N
    assert simulation.scores_from(torch.zeros(0, 1, dtype=torch.int64)).shape == (0, M)


def test_what_is_said_of_newcomers_is_checked(small):
    method = Remembering()
    method.wide = 1
    simulation = simulated(small, method)
    with pytest.raises(TypeError, match=r"^plain: scores returned scores of shape \[2, 61\], not \[2, 60\]; every"):
        simulation.scores_from(torch.zeros(2, 1, dtype=torch.int64))
    with pytest.raises(
        TypeError, match=r"^plain: contributions returned contributions of shape \[2, 1, 2\], not \[2, 1, 3\]; every"
    ):
        simulation.contributions(torch.zeros(2, 1, dtype=torch.int64), torch.zeros(2, 3, dtype=torch.int64))
