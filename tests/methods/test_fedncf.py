from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import fedrec
from fedrec.errors import ConfigError
from fedrec.federation.payload import Payload, RowUpdate, Upload, tensor
from fedrec.federation.simulation import Simulation
from fedrec.federation.store import ClientState
from fedrec.federation.task import Task
from fedrec.methods import create
from fedrec.methods.fedncf import FedNCF
from fedrec.parts.merger import ADAPTER
from fedrec.sampling.samples import Samples
from fedrec.testing import MethodSuite

FAST = {"dim": 4, "lr": 0.02, "init_std": 0.05}


class TestFedNCF(MethodSuite):
    method = FedNCF
    options = FAST
    rounds = 10
    floor = 0.28


class Recorder(FedNCF):
    """Keeps what clients start from and upload."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.seen: list[tuple[Samples, Payload, Payload]] = []

    def train(
        self, task: Task, private: ClientState, payload: Payload, samples: Samples, round: int
    ) -> tuple[Payload, Tensor]:
        parts, loss = super().train(task, private, payload, samples, round)
        self.seen.append((samples, payload, parts))
        return parts, loss


def small(users: int) -> fedrec.Split:
    data = fedrec.load("demo")
    rows = np.nonzero(data.users < users)[0]
    frame = {
        "user": [data.user_ids[u] for u in data.users[rows]],
        "item": [data.item_ids[i] for i in data.items[rows]],
        "timestamp": np.asarray(data.timestamps)[rows].tolist(),
    }
    return fedrec.HONEST.with_options(candidates=10).split(fedrec.from_frame(frame), seed=0)


@pytest.mark.parametrize(("dim", "network"), [(16, 4881), (12, 2773)])
def test_neumf_sends_the_published_number_of_weights(dim: int, network: int) -> None:
    method = FedNCF(dim=dim)
    state = Simulation(method, small(3).training).server
    assert state["network"].numel() == network
    assert state["items"].shape[1] == 2 * dim == method.table_dim


def test_neumf_without_perceptron_and_with_unit_weights_is_fedmf() -> None:
    method = FedNCF(dim=4)
    layers, product, units, _ = method.pieces
    network = torch.zeros(3, sum(method.pieces))
    network[:, layers : layers + product] = 1
    network[:, layers + product : layers + product + units] = torch.randn(3, units)
    user, rows = torch.randn(3, 8), torch.randn(3, 5, 8)
    expected = (rows[..., :4] @ user[:, :4, None]).squeeze(2)
    assert torch.allclose(method.pair_scores(user, network, rows), expected, atol=1e-6)


@pytest.mark.parametrize("variant", ["gmf", "mlp", "neumf"])
def test_scores_follow_the_formulas(variant: str) -> None:
    method = FedNCF(dim=4, variant=variant, **({} if variant == "gmf" else {"tower": (8, 6, 3)}))
    torch.manual_seed(0)
    network = torch.randn(1, sum(method.pieces))
    user, rows = torch.randn(1, method.table_dim), torch.randn(1, 5, method.table_dim)
    layers, product, units, bias = (part[0] for part in torch.split(network, method.pieces, dim=1))
    p, q = user[0], rows[0]
    logits = torch.full((5,), float(bias))
    if variant != "mlp":
        logits += (p[:4] * q[:, :4]) @ product
        p, q = p[4:], q[:, 4:]
    if variant != "gmf":
        x = torch.relu(torch.cat([p.expand(5, -1), q], 1) @ layers[:48].view(6, 8).T + layers[48:54])
        x = torch.relu(x @ layers[54:72].view(3, 6).T + layers[72:75])
        logits += x @ units
    assert torch.allclose(method.pair_scores(user, network, rows)[0], logits, atol=1e-5)


def test_all_items_are_scored_as_pairs_are(monkeypatch: pytest.MonkeyPatch) -> None:
    split = small(5)
    simulation = Simulation(FedNCF(**FAST), split.training)
    simulation.round(0)
    everybody = torch.arange(5)
    whole = simulation.scores(everybody)
    monkeypatch.setattr("fedrec.parts.scorers.PAIRS", {"cpu": 2 * split.data.n_items})
    assert torch.allclose(simulation.scores(everybody), whole, atol=1e-6)


def test_one_client_hands_its_weights_to_the_server() -> None:
    method = Recorder(**FAST, participation=0.25)  # one of four clients
    simulation = Simulation(method, small(4).training)
    before = {name: value.clone() for name, value in simulation.server.items()}
    simulation.round(0)
    samples, _, parts = method.seen[0]
    change = parts["items"]
    assert isinstance(change, RowUpdate)
    touched = samples.rows[0].long()
    assert torch.allclose(simulation.server["items"][touched], before["items"][touched] + change.values[0], atol=1e-6)
    others = torch.ones(len(before["items"]), dtype=torch.bool)
    others[touched] = False
    assert torch.equal(simulation.server["items"][others], before["items"][others])
    assert torch.allclose(simulation.server["network"], before["network"] + tensor(parts, "network")[0], atol=1e-6)
    assert not torch.equal(simulation.server["network"], before["network"])


@pytest.mark.parametrize(("rule", "weights"), [("size", (0.75, 0.25)), ("uniform", (0.5, 0.5))])
def test_disjoint_rows_are_kept_and_networks_averaged(rule: str, weights: tuple[float, float]) -> None:
    method = FedNCF(dim=2, variant="gmf", network_agg=rule)
    server = {"items": torch.randn(4, 2), "network": torch.randn(3)}
    rows = torch.tensor([[0, 2], [1, 0]], dtype=torch.int32)
    counts = torch.tensor([2, 1])
    values = torch.randn(2, 2, 2)
    values[1, 1] = 0
    networks = torch.randn(2, 3)
    parts: Payload = {"items": RowUpdate(rows, counts, values, 4), "network": networks}
    task = Task(2, 4, torch.tensor([30, 10]), 0, torch.device("cpu"))
    gathering = method.gather(task)
    gathering.add(Upload(torch.arange(2), torch.tensor([30.0, 10.0]), parts))
    after = gathering.step(server, 0)
    moved = torch.stack([values[0, 0], values[1, 0], values[0, 1], torch.zeros(2)])
    assert torch.allclose(after["items"], server["items"] + moved, atol=1e-6)
    mean = weights[0] * networks[0] + weights[1] * networks[1]
    assert torch.allclose(after["network"], server["network"] + mean, atol=1e-6)


def test_clients_start_from_the_server_and_every_layer_learns() -> None:
    method = Recorder(**FAST)
    simulation = Simulation(method, small(4).training)
    simulation.round(0)
    start = simulation.server["network"].clone()
    method.seen.clear()
    simulation.round(1)
    _, payload, parts = method.seen[0]
    assert torch.equal(tensor(payload, "network")[0], start)
    for piece in torch.split(tensor(parts, "network"), method.pieces, dim=1):
        assert bool((piece != 0).any())


def test_batched_clients_equal_a_sequential_loop() -> None:
    split = small(12)
    found = []
    for size in (None, 1):
        simulation = Simulation(FedNCF(dim=4, optimizer="sgd", lr=0.1), split.training, cohort_samples=size)
        for number in range(3):
            simulation.round(number)
        found.append(simulation.server)
    for name in found[0]:
        assert torch.allclose(found[0][name], found[1][name], atol=1e-6)


def test_decay_shrinks_the_network() -> None:
    split = small(6)
    norms = []
    for decay in (0.0, 1.0):
        simulation = Simulation(FedNCF(**FAST, network_decay=decay), split.training)
        simulation.round(0)
        norms.append(float(simulation.server["network"].norm()))
    assert norms[1] < 0.95 * norms[0]


@pytest.mark.parametrize("variant", ["mlp", "neumf"])
def test_elastic_merging_plugs_in(variant: str) -> None:
    split = small(6)
    method = create("fedncf", merge="elastic", variant=variant, **FAST, adapter_epochs=1)
    simulation = Simulation(method, split.training)
    for number in range(3):
        simulation.round(number)
    assert bool(torch.isfinite(simulation.scores(torch.arange(6))).all())
    adapters = simulation.store.tensors[ADAPTER]
    assert bool((adapters[0] != adapters[1]).any()), "adapters did not learn"


def test_merging_by_replacement_is_the_method_itself() -> None:
    split = small(6)
    found = []
    for merge in (None, "replace"):
        # Under a uniform mean a dense upload is the same as the touched rows.
        simulation = Simulation(create("fedncf", merge=merge, agg="uniform", **FAST), split.training)
        for number in range(2):
            simulation.round(number)
        found.append(simulation.scores(torch.arange(6)))
    assert torch.allclose(found[0], found[1], atol=1e-5)


def test_a_last_width_of_one_is_the_output_layer() -> None:
    long, short = FedNCF(variant="mlp", tower=(32, 16, 8, 1)), FedNCF(variant="mlp", tower=(32, 16, 8))
    assert long.pieces == short.pieces
    assert sum(long.pieces) == 32 * 16 + 16 + 16 * 8 + 8 + 8 + 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tower": (30, 8)}, "start at 32"),
        ({"tower": (32,)}, "at least one positive width"),
        ({"tower": (32, 1)}, "at least one positive width"),
        ({"tower": (32, 0, 8)}, r"tower\[1\].*greater than or equal to 1"),
        ({"variant": "gmf", "tower": (32, 8)}, "has no tower"),
        ({"variant": "deep"}, "variant"),
    ],
)
def test_bad_settings_are_one_sentence(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FedNCF(**options)


def test_a_common_start_is_common() -> None:
    for common, different in ((True, 1), (False, 30)):
        simulation = Simulation(create("fedncf", common_init=common, **FAST), small(30).training)
        assert len(torch.unique(simulation.store.at(torch.arange(30))["user"], dim=0)) == different
