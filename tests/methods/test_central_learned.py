import numpy as np
import pytest
import torch

import fedrec
from fedrec.data.training import Ragged, TrainingView
from fedrec.errors import ConfigError, FedrecError
from fedrec.federation.method import Task
from fedrec.federation.privacy import Privacy
from fedrec.federation.simulation import Simulation
from fedrec.federation.trainer import Setup
from fedrec.methods.central.lightgcn import Graph, LightGCN
from fedrec.methods.central.mf import MF
from fedrec.methods.central.ncf import NCF
from fedrec.methods.central.observed import Observed
from fedrec.methods.fedmf import FedMF
from fedrec.testing import MethodSuite
from pretended_graphs import pretend

CPU = torch.device("cpu")


class TestMF(MethodSuite):
    method = MF
    options = {"lr": 0.03, "batch_size": 2048}
    rounds = 5
    floor = 0.6
    federated = False


class TestMFPairwise(MethodSuite):
    method = MF
    options = {"loss": "bpr", "lr": 0.04, "batch_size": 1024, "reg": 0.01, "biases": True}
    rounds = 5
    floor = 0.58
    federated = False


class TestNCF(MethodSuite):
    method = NCF
    options = {"lr": 0.02, "batch_size": 2048, "dim": 8, "tower": (16, 8)}
    rounds = 3
    floor = 0.62
    federated = False


class TestLightGCN(MethodSuite):
    method = LightGCN
    options = {"lr": 0.04, "layers": 2, "batch_size": 1024}
    rounds = 6
    floor = 0.62
    federated = False


def view_of(lists, n_items, excluded=None):
    owners = np.repeat(np.arange(len(lists)), [len(items) for items in lists])
    positives = Ragged.build(owners, np.concatenate([np.asarray(items, np.int64) for items in lists]), len(lists))
    return TrainingView(len(lists), n_items, positives, excluded or positives)


def observed(lists, n_items):
    return Observed(view_of(lists, n_items), CPU)


def trained(method, view, rounds=2, seed=0):
    trainer = method.trainer(view, Setup(seed))
    for number in range(rounds):
        trainer.round(number)
    return trainer


def test_federated_rule_a_with_one_full_step_is_gradient_descent(small):
    """Full-batch descent on the sum of the clients' losses equals FedMF with rule A (fedmf.md 1.4)."""
    simulation = Simulation(
        FedMF(optimizer="sgd", epochs=1, batch_size=100_000, agg="sum", lr=0.3, init_std=0.5), small.training
    )
    everybody = torch.arange(small.data.n_users)
    params = {
        "user": simulation.store.at(everybody)["user"].clone().requires_grad_(),
        "item": simulation.server["items"].clone().requires_grad_(),
    }
    samples = simulation.sampler.draw(everybody, negatives=4, seed=0, round=0)
    total = torch.zeros(())
    for client, count in enumerate(samples.counts.tolist()):
        groups = samples.items[client, :count].long().view(-1, 5)
        owner = torch.full((len(groups),), client)
        total = total + MF().loss(params, observed([[0]], 1), (owner, groups[:, 0], groups[:, 1:]))
    total.backward()
    simulation.round(0)
    assert torch.allclose(simulation.server["items"], params["item"] - 0.3 * params["item"].grad, atol=1e-5)
    stepped = params["user"] - 0.3 * params["user"].grad
    assert torch.allclose(simulation.store.at(everybody)["user"], stepped, atol=1e-5)


def test_lightgcn_without_layers_is_pairwise_mf(small):
    shared = {"lr": 0.02, "batch_size": 64, "reg": 0.01, "dim": 8}
    everybody = torch.arange(small.data.n_users)
    one = trained(LightGCN(layers=0, **shared), small.training).scores(everybody)
    other = trained(MF(loss="bpr", **shared), small.training).scores(everybody)
    assert torch.allclose(one, other, atol=1e-6)
    deeper = trained(LightGCN(layers=1, **shared), small.training).scores(everybody)
    assert not torch.allclose(one, deeper, atol=1e-3)


def test_star_graph_has_the_closed_form():
    """One user with positives 0, 1, 2 of five items (hetefedrec.md section 2)."""
    graph, n = Graph(observed([[0, 1, 2]], 5)), 3
    table = torch.randn(6, 4)
    user, items = table[0], table[1:]
    found = graph.mean_of_layers(table, 2)
    assert torch.allclose(found[0], (user + items[:n].sum(0) / n**0.5 + user) / 3, atol=1e-6)
    expected = (items[0] + user / n**0.5 + items[:n].mean(0)) / 3
    assert torch.allclose(found[1], expected, atol=1e-6)
    assert torch.allclose(found[4:], items[3:] / 3, atol=1e-6), "items without edges keep layer 0 / (K + 1)"


def test_gradients_pass_through_the_propagation():
    graph = Graph(observed([[0, 1], [1, 3], [2]], 4))
    dense = torch.zeros(7, 7)
    rows = torch.repeat_interleave(torch.arange(7), graph.begins.diff())
    dense[rows, graph.columns] = graph.values
    assert torch.equal(dense, dense.T)
    table, weight = torch.randn(7, 3), torch.randn(7, 3)
    one, other = table.clone().requires_grad_(), table.clone().requires_grad_()
    (graph.smooth(one, 2) * weight).sum().backward()
    (((other + dense @ other + dense @ dense @ other) / 3) * weight).sum().backward()
    assert torch.allclose(one.grad, other.grad, atol=1e-6)


def test_graph_holds_no_held_out_edge(honest):
    graph = Graph(Observed(honest.training, CPU))
    n, m = honest.data.n_users, honest.data.n_items
    users = torch.repeat_interleave(torch.arange(n + m), graph.begins.diff())
    edges = set((users * (n + m) + graph.columns).tolist())
    assert len(edges) == 2 * len(honest.training.positives.values)
    for part in (honest.validation.items, honest.test.items):
        assert not edges & set((part.owners * (n + m) + n + part.values).tolist())
        assert not edges & set(((n + part.values) * (n + m) + part.owners).tolist())


def test_zero_tower_is_generalised_matrix_factorisation(small):
    method = NCF(dim=4, tower=(8, 4))
    data = Observed(small.training, CPU)
    task = Task(data.n_users, data.n_items, data.counts, 0, CPU)
    state = method.weights(data, task)
    state["tower_user"].zero_()
    state["tower_item"].zero_()
    expected = (state["product_user"][:3] * state["output"][0, :4]) @ state["product_item"].T
    assert torch.allclose(method.rate(state, data, torch.arange(3)), expected, atol=1e-7)
    assert float(expected.abs().max()) > 0


def test_first_layer_by_halves_is_the_first_layer():
    method = NCF(dim=3, tower=(5, 2), init_std=1.0)
    data = observed([[0, 1], [2]], 4)
    p = method.weights(data, Task(2, 4, data.counts, 0, CPU))
    found = method.logits_of(p, torch.tensor([[1]]), torch.tensor([[3]]))
    hidden = torch.cat([p["tower_user"][1], p["tower_item"][3]])
    for layer in range(2):
        hidden = torch.relu(p[f"layer{layer}"] @ hidden + p[f"offset{layer}"])
    joined = torch.cat([p["product_user"][1] * p["product_item"][3], hidden])
    assert float(found) == pytest.approx(float(p["output"][0] @ joined), abs=1e-6)


def test_an_epoch_visits_every_row_once_with_honest_negatives(small):
    data = Observed(small.training, CPU)
    batches = list(data.batches(7, 4, seed=3, epoch=1))
    users, positives, negatives = (torch.cat(column) for column in zip(*batches, strict=True))
    m = data.n_items
    assert torch.equal((users * m + positives).sort().values, (data.users * m + data.items).sort().values)
    assert not torch.equal(users, data.users), "rows must be shuffled"
    own = set((data.users * m + data.items).tolist())
    drawn = (users[:, None] * m + negatives).flatten().tolist()
    assert not own & set(drawn)
    many = torch.cat([data.negatives(data.users, 4, seed=3, epoch=e) + data.users[:, None] * m for e in range(60)])
    test = set((small.test.items.owners * m + small.test.items.values).tolist())
    seen = set(many.flatten().tolist())
    assert len(test & seen) > 0.9 * len(test), "held-out items must be drawn like any other"


def test_user_uniform_sampling_ignores_how_active_users_are():
    lists = [list(range(90)), list(range(5)), list(range(5, 10))]
    data = observed(lists, 100)
    users, items = zip(*(data.rows(0, epoch, "user_uniform") for epoch in range(40)), strict=True)
    users, items = torch.cat(users), torch.cat(items)
    assert len(users) == 40 * 100
    share = torch.bincount(users, minlength=3) / len(users)
    assert torch.allclose(share, torch.full((3,), 1 / 3), atol=0.03)
    assert set(items[users == 2].tolist()) == set(range(5, 10))


def test_negatives_of_a_user_with_everything_are_refused():
    view = view_of([[0, 1, 2], [0]], 3)
    with pytest.raises(ConfigError, match="user 0 has interacted with all 3 items"):
        trained(MF(), view, rounds=1)


def test_what_only_a_federation_has_is_refused(small, tmp_path):
    with pytest.raises(ConfigError, match="centralised and uploads nothing"):
        fedrec.train(MF(), small, rounds=1, device="cpu", progress=False, privacy=Privacy())
    with pytest.raises(ConfigError, match="no client state"):
        fedrec.train(MF(), small, rounds=1, device="cpu", progress=False, out=tmp_path, store="disk")
    with pytest.raises(FedrecError, match="cannot run as a federation"):
        Simulation(MF(), small.training)


def test_divergence_is_one_sentence(small):
    with pytest.raises(FedrecError, match=r"diverged in epoch \d+.*lower lr"):
        trained(MF(loss="bpr", lr=1e18, init_std=1e3), small.training, rounds=8)


LEARNED = [
    LightGCN(layers=2, batch_size=50, lr=0.02),
    MF(batch_size=100, reg=0.01),
    MF(loss="bpr", biases=True, batch_size=30),
    NCF(dim=4, tower=(8, 4), batch_size=200, reg=0.01),
]


@pytest.mark.parametrize("method", LEARNED, ids=lambda method: f"{method.name}-{method.config.batch_size}")
def test_recorded_steps_are_the_steps(method, small, monkeypatch):
    """What a GPU records is bound to the memory it was recorded with; a resumed run records anew."""
    plain = method.trainer(small.training, Setup(0))
    losses = [plain.round(number).loss for number in range(4)]
    pretended = pretend(monkeypatch)
    recorded = trained(method, small.training, rounds=2)
    resumed = method.trainer(small.training, Setup(0))
    resumed.round(7)
    resumed.load_state({name: value.clone() for name, value in recorded.state().items()})
    for number in (2, 3):
        assert recorded.round(number).loss == resumed.round(number).loss == losses[number]
    for name, value in plain.state().items():
        assert torch.equal(recorded.state()[name], value)
        assert torch.equal(resumed.state()[name], value)
    assert pretended.replays > 10 * pretended.recordings
