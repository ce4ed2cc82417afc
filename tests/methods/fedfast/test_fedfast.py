from typing import Any

import numpy as np
import pytest
import torch

import fedrec
from fedrec.errors import ConfigError
from fedrec.federation.payload import Payload, RowUpdate, Upload
from fedrec.federation.simulation import Simulation
from fedrec.federation.task import Task
from fedrec.methods.fedfast import FedFast
from fedrec.methods.fedfast.method import draw_evenly, propagate
from fedrec.methods.fedmf import FedMF
from fedrec.testing import MethodSuite


class TestFedFast(MethodSuite):
    method = FedFast
    # The first round of the default, in which everybody trains, has a test of its own below.
    options = {"lr": 0.02, "init_std": 0.05, "clusters": 3, "first_clusters": "random"}
    private_options = {"agg": "uniform"}
    floor = 0.30


class TestWithOutputLayer(MethodSuite):
    method = FedFast
    options = {"lr": 0.02, "init_std": 0.05, "clusters": 3, "first_clusters": "random", "scorer": "gmf"}
    private_options = {"agg": "uniform"}
    rounds = 8
    floor = 0.25


@pytest.fixture(scope="module")
def demo() -> fedrec.Split:
    return fedrec.HONEST.split(fedrec.load("demo"), seed=0)


def aggregated(values: torch.Tensor, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The table before and after three delegates changed its first row by ``values`` [3, d]."""
    method = FedFast(dim=2, clusters=1, **options)
    server = {
        "items": torch.randn(4, 2),
        "users": torch.randn(5, 2),
        "centroids": torch.zeros(1, 2),
    }
    task = Task(5, 4, torch.ones(5, dtype=torch.int64), 0, torch.device("cpu"))
    rows = RowUpdate(torch.zeros(3, 1, dtype=torch.int32), torch.ones(3, dtype=torch.int64), values[:, None], 4)
    parts: Payload = {"items": rows, "user": torch.zeros(3, 2)}
    after = method.step(task, server, [Upload(torch.arange(3), torch.tensor([1.0, 5.0, 9.0]), parts)], 0)
    return server["items"], after["items"]


def test_equal_changes_make_the_mean_over_touching_clients() -> None:
    values = torch.tensor([[0.5, -0.5], [0.25, 0.75], [-1.0, 0.0]])
    before, after = aggregated(values)
    assert torch.allclose(after[0], before[0] + values.mean(0), atol=1e-6)
    assert torch.equal(after[1:], before[1:])


@pytest.mark.parametrize("norm", ["l1", "l2", "coordinate"])
def test_rows_are_weighted_by_their_change(norm: str) -> None:
    values = torch.tensor([[3.0, 4.0], [1.0, 0.0], [0.0, -2.0]])
    weights = {
        "l1": [[7.0], [1.0], [2.0]],
        "l2": [[5.0], [1.0], [2.0]],
        "coordinate": [[3.0, 4.0], [1.0, 0.0], [0.0, 2.0]],
    }
    weight = torch.tensor(weights[norm])
    before, after = aggregated(values, norm=norm)
    rows = before[0] + values  # the delegates' own rows
    assert torch.allclose(after[0], (weight * rows).sum(0) / weight.sum(0), atol=1e-5)


def test_weights_only_count_relative_to_each_other() -> None:
    values = torch.tensor([[3.0, 4.0], [1.0, 0.0], [0.0, -2.0]])
    before, after = aggregated(values)
    again, scaled = aggregated(values * 10)
    assert torch.allclose((after - before) * 10, scaled - again, atol=1e-5)


def test_one_delegate_hands_its_rows_to_the_server() -> None:
    values = torch.tensor([[0.3, -0.1], [0.0, 0.0], [0.0, 0.0]])
    before, after = aggregated(values)
    assert torch.allclose(after[0], before[0] + values[0], atol=1e-6)


def test_without_gamma_subordinates_rest(demo: fedrec.Split) -> None:
    simulation = Simulation(FedFast(gamma=0, first_clusters="random"), demo.training)
    before = simulation.server["users"].clone()
    simulation.round(0)
    moved = (simulation.server["users"] != before).any(1)
    assert int(moved.sum()) == 50  # a tenth of the clients, all delegates


def test_one_cluster_moves_as_a_whole() -> None:
    before = torch.randn(6, 3)
    delegate = torch.tensor([True, False, True, False, False, False])
    after = torch.where(delegate[:, None], before + torch.randn(6, 3), before)
    users = propagate(before, after, delegate, torch.zeros(6, dtype=torch.int64), 1, 1.0)
    mean = (after - before)[delegate].mean(0)
    assert torch.equal(users[delegate], after[delegate])
    assert torch.allclose(users[~delegate], before[~delegate] + mean, atol=1e-6)


def test_clusters_move_with_their_own_delegates_only() -> None:
    before = torch.zeros(6, 2)
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    delegate = torch.tensor([True, False, True, False, False, False])
    after = before.clone()
    after[0], after[2] = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 2.0])
    users = propagate(before, after, delegate, labels, 3, 0.5)
    expected = [[1.0, 0.0], [0.5, 0.0], [0.0, 2.0], [0.0, 1.0], [0.0, 0.0], [0.0, 0.0]]
    assert torch.equal(users, torch.tensor(expected))


def test_names_of_clusters_do_not_matter() -> None:
    before, after = torch.randn(20, 3), torch.randn(20, 3)
    delegate = torch.arange(20) % 3 == 0
    labels = torch.randint(0, 4, (20,), generator=torch.Generator().manual_seed(0))
    renamed = torch.tensor([2, 0, 3, 1])[labels]
    users = propagate(before, after, delegate, labels, 4, 1.0)
    assert torch.allclose(users, propagate(before, after, delegate, renamed, 4, 1.0), atol=1e-6)


def test_full_participation_is_fedmf_with_rule_d(demo: fedrec.Split) -> None:
    fast = Simulation(FedFast(participation=1.0), demo.training)
    plain = Simulation(FedMF(agg="change"), demo.training)
    for number in range(2):
        fast.round(number)
        plain.round(number)
    users = plain.store.at(torch.arange(demo.data.n_users))["user"]
    assert torch.allclose(fast.server["users"], users, atol=1e-5)
    assert torch.allclose(fast.server["items"], plain.server["items"], atol=1e-5)


def test_full_participation_leaves_nothing_to_propagate(demo: fedrec.Split) -> None:
    found = []
    for gamma in (0.0, 1.0):
        simulation = Simulation(FedFast(participation=1.0, gamma=gamma), demo.training)
        simulation.round(0)
        found.append(simulation.server["users"])
    assert torch.equal(*found)


def test_gamma_decays(demo: fedrec.Split) -> None:
    moves = []
    for tau in (0.1, None):
        simulation = Simulation(FedFast(tau=tau, first_clusters="random"), demo.training)
        simulation.round(0)
        before = simulation.server["users"].clone()
        simulation.round(1)
        moves.append(int(((simulation.server["users"] - before).abs().sum(1) > 1e-3).sum()))
    assert moves[0] == 50 < moves[1]


def test_everybody_trains_before_the_first_clusters(demo: fedrec.Split) -> None:
    simulation = Simulation(FedFast(), demo.training)
    assert simulation.round(0).clients == demo.data.n_users
    assert simulation.round(1).clients == 50


def test_sampling_is_even_over_clusters() -> None:
    labels = torch.arange(100) % 5
    chosen = draw_evenly(torch.arange(100), labels, 20, np.random.default_rng(0))
    assert torch.bincount(labels[chosen]).tolist() == [4, 4, 4, 4, 4]
    assert len(torch.unique(chosen)) == 20
    other = draw_evenly(torch.arange(100), labels, 20, np.random.default_rng(1))
    assert not torch.equal(chosen, other)


def test_small_clusters_are_taken_whole_and_large_ones_fill_up() -> None:
    labels = torch.tensor([0] * 1 + [1] * 30 + [2] * 10 + [4] * 9)  # cluster 3 is empty
    chosen = draw_evenly(torch.arange(50), labels, 12, np.random.default_rng(0))
    assert torch.bincount(labels[chosen], minlength=5).tolist() == [1, 4, 4, 0, 3]


def test_user_vectors_count_in_the_upload(demo: fedrec.Split) -> None:
    options = {"dim": 16, "participation": 1.0}
    with_user = Simulation(FedFast(**options), demo.training).round(0)
    without = Simulation(FedMF(**options), demo.training).round(0)
    extra = 4 * 16 * demo.data.n_users
    assert with_user.bytes_up - without.bytes_up == extra == with_user.bytes_down - without.bytes_down


@pytest.mark.parametrize("options", [{"kmeans": "cold"}, {"clustering": "before"}])
def test_variants_run_and_differ(demo: fedrec.Split, options: dict[str, Any]) -> None:
    found = []
    for chosen in ({}, options):
        simulation = Simulation(FedFast(**chosen), demo.training)
        for number in range(3):
            simulation.round(number)
        found.append(simulation.server["users"])
    assert not torch.equal(*found)
    assert bool(torch.isfinite(found[1]).all())


def test_reports_say_that_the_server_knows_the_users(demo: fedrec.Split) -> None:
    report = Simulation(FedFast(), demo.training).diagnostics()
    assert report["server_holds_user_vectors"] is True
    assert sum(report["cluster_sizes"]) == demo.data.n_users


def test_more_clusters_than_participants_are_refused(demo: fedrec.Split) -> None:
    with pytest.raises(ConfigError, match="51 clusters are more than the 50 participants"):
        Simulation(FedFast(clusters=51), demo.training)
