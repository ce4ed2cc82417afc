"""A merged method is its base in everything but the table on the way in and out."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor

import fedrec
from fedrec.data.training import TrainingView
from fedrec.errors import ConfigError
from fedrec.federation.ledger import Ledger
from fedrec.federation.payload import Payload, State
from fedrec.federation.result import Result, ResultTable
from fedrec.federation.simulation import Simulation
from fedrec.federation.store import ClientState
from fedrec.federation.task import Task
from fedrec.methods import create, rebuild
from fedrec.methods.fedmf import FedMF
from fedrec.parts.merged_method import merged
from fedrec.parts.merger import ADAPTER, OWN, STARTED

EVERYBODY = torch.arange(40)
SHORT: dict[str, Any] = {"epochs": 1, "adapter_epochs": 1}
SHORT_OF = {"fedfast": {"clusters": 3, "first_clusters": "random"}, "gpfedrec": {"lr_eta": 4.0}}


class Talking(FedMF):
    """A method that has its own word in everything a method may have one in."""

    name = "talking"
    logits = False
    rounds = 7
    views = ("doubled",)

    def privacy_problem(self) -> str:
        return "it talks"

    def server_bytes(self, clients: int, items: int, private: int) -> int:
        return 3 * private + clients * items

    def own_data(self, view: TrainingView, clients: Tensor) -> State:
        return {"note": clients[:, None].float()}

    def view_scores(self, task: Task, view: str, private: ClientState, payload: Payload) -> Tensor:
        assert view == "doubled"
        return 2 * private["user"][:, :1].expand(-1, task.n_items)

    def client_groups(self, task: Task) -> dict[str, Tensor]:
        return {"first": torch.tensor([0])}

    def diagnostics(self, task: Task, server: State, ledger: Ledger) -> dict[str, Any]:
        return {"visits": int(ledger.visits.sum())}

    def tables(self, result: Result) -> list[ResultTable]:
        return [ResultTable(title=result.label, columns=["visits"], rows=[[str(result.diagnostics["visits"])]])]


def test_what_the_base_says_is_kept(small: fedrec.Split) -> None:
    method = merged(Talking)(merge="static", epochs=1)
    simulation = Simulation(method, small.training)
    simulation.round(0)
    assert (simulation.logits, method.rounds, method.name) == (False, 7, "talking+static")
    assert method.privacy_problem() == "it talks"
    assert method.server_bytes(2, 4, 5) == 23
    assert simulation.diagnostics()["visits"] == 40
    assert simulation.client_groups()["first"].tolist() == [0]
    assert simulation.views == ("doubled", "unmerged")
    state = simulation.store.at(EVERYBODY)
    assert torch.equal(simulation.scores(EVERYBODY, "doubled"), 2 * state["user"][:, :1].expand(-1, 60))
    assert state["note"][:, 0].tolist() == EVERYBODY.tolist()
    with pytest.raises(ConfigError, match=r"talking\+static cannot be combined with a privacy stage: it talks"):
        fedrec.train(method, small, rounds=1, device="cpu", progress=False, privacy=fedrec.Privacy())


def test_tables_and_diagnostics_reach_the_result(small: fedrec.Split) -> None:
    result = fedrec.train(
        merged(Talking)(merge="static", epochs=1), small, rounds=2, device="cpu", progress=False
    ).result
    assert result.method == "talking+static"
    assert result.diagnostics["visits"] == 40 * result.model_round
    assert result.tables[0].rows == [[str(40 * result.model_round)]]
    assert list(result.client_groups) == ["first"]


def test_the_server_of_fedfast_still_says_that_it_knows_the_users(small: fedrec.Split) -> None:
    method = create("fedfast", merge="elastic", **SHORT, **SHORT_OF["fedfast"])
    result = fedrec.train(method, small, rounds=2, device="cpu", progress=False).result
    assert result.diagnostics["server_holds_user_vectors"] is True
    assert sum(result.diagnostics["cluster_sizes"]) == 40


def test_views_of_the_base_are_its_own() -> None:
    assert create("gpfedrec").views == ("global", "r")
    assert create("gpfedrec", merge="elastic").views == ("global", "r", "unmerged")
    assert create("pfedrec", merge="elastic", score_table="global").views == ("own", "unmerged")


def test_the_unmerged_view_is_the_methods_own_way_to_score(small: fedrec.Split) -> None:
    simulation = Simulation(create("pfedrec", merge="static", rho=0.3, dim=4, score_table="own"), small.training)
    for number in range(2):
        simulation.round(number)
    state, items = simulation.store.at(EVERYBODY), simulation.server["items"]
    assert torch.equal(simulation.scores(EVERYBODY, "unmerged"), state["own"])
    unit, own = state["unit"], state[OWN]
    table = own + 0.3 * (items - own)
    expected = (table @ unit[:, :4, None]).squeeze(2) + unit[:, 4:]
    assert torch.allclose(simulation.scores(EVERYBODY), expected, rtol=1e-4, atol=1e-3)
    assert not torch.allclose(simulation.scores(EVERYBODY), state["own"], rtol=1e-2)


@pytest.mark.parametrize("name", ["fedmf", "fedncf", "pfedrec", "gpfedrec", "fedrap", "fedfast"])
@pytest.mark.parametrize("mode", ["none", "static", "dynamic", "elastic"])
def test_every_base_merges_in_every_way(small: fedrec.Split, name: str, mode: str) -> None:
    method = create(name, merge=mode, dim=4, **SHORT, **SHORT_OF.get(name, {}))
    simulation = Simulation(method, small.training)
    start = simulation.scores(EVERYBODY).clone()
    started = simulation.store.tensors[STARTED].clone()
    for number in range(2):
        simulation.round(number)
    assert not bool(started.any())
    assert bool(simulation.store.tensors[STARTED].any())
    assert (ADAPTER in simulation.store.tensors) == (mode in ("dynamic", "elastic"))
    scores = simulation.scores(EVERYBODY)
    assert bool(torch.isfinite(scores).all())
    assert not torch.equal(scores, start)
    for view in simulation.views:
        assert bool(torch.isfinite(simulation.scores(EVERYBODY, view)).all())


def test_a_client_that_merges_nothing_keeps_its_own_table(small: fedrec.Split) -> None:
    simulation = Simulation(create("fedmf", merge="none", epochs=1), small.training)
    for number in range(2):
        simulation.round(number)
    state = simulation.store.at(EVERYBODY)
    own = (state[OWN] @ state["user"][:, :, None]).squeeze(2)
    torch.testing.assert_close(simulation.scores(EVERYBODY), own)
    server = simulation.server["items"].expand(40, -1, -1)
    assert (state[OWN] - server).abs().max() > 1e-3


def test_settings_lie_beside_the_methods_and_come_back(small: fedrec.Split, tmp_path: Any) -> None:
    method = create("fedmf", merge="static", rho=0.25, lr=0.05, epochs=1)
    described = method.describe_config()
    assert (described["merge"], described["rho"], described["lr"]) == ("static", 0.25, 0.05)
    again = rebuild(method.name, described)
    assert type(again) is type(method) is merged(FedMF)
    assert again.config == method.config
    run = fedrec.train(method, small, rounds=1, device="cpu", progress=False)
    run.save(tmp_path)
    loaded = fedrec.load_run(tmp_path)
    assert torch.equal(loaded.trainer.scores(EVERYBODY), run.trainer.scores(EVERYBODY))


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("popularity", {"merge": "elastic"}, "popularity downloads no item table"),
        ("local", {"merge": "elastic"}, "local downloads no item table"),
        ("ease", {"merge": "elastic"}, "ease downloads no item table"),
        ("fedmf", {"merge": "elastik"}, "did you mean 'elastic'"),
        ("fedmf", {"rho": 0.3}, "rho has no effect on fedmf unless clients merge"),
        ("fedmf", {"merge": "static", "rho": 2}, "rho"),
        ("fedmf", {"merge": "elastic", "adapter_hidden": [0]}, r"adapter_hidden"),
        ("fedmf", {"merge": "elastic", "adapter_epoch": 2}, "did you mean 'adapter_epochs'"),
        ("fedmf", {"merge_variant": "code"}, "merge_variant has no effect on fedmf unless clients merge"),
        ("fedmf", {"merge": "dynamic", "merge_variant": "code"}, "dynamic merging needs adapter_schedule=before"),
        ("fedmf", {"merge": "elastic", "keep_shared": True}, r"fedmf\+elastic shares nothing beside its table"),
    ],
)
def test_mistakes_are_one_sentence(name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        create(name, **options)


def test_copies_and_pickles_are_the_same_method_with_the_same_settings() -> None:
    method = create("fedmf", merge="static", rho=0.3, lr=0.05)
    method.rounds = 7
    for again in (copy.deepcopy(method), pickle.loads(pickle.dumps(method))):
        assert type(again) is type(method)
        assert again.config == method.config
        assert (again.name, again.rounds) == ("fedmf+static", 7)
