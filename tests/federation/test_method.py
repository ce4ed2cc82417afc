"""What a server may see is part of a method's type."""

import pytest
import torch

import fedrec
from fedrec.federation.method import EachMethod, Method, SumMethod
from fedrec.federation.payload import Upload
from fedrec.federation.simulation import Simulation
from fedrec.methods import create, names
from fedrec.methods.fedem import FedEM
from fedrec.methods.fedmf import FedMF

SETTINGS = {"fedfast": {"clusters": 3}}
FEDERATED = [name for name in names() if isinstance(create(name), Method)]


def test_the_kinds() -> None:
    each = [name for name in FEDERATED if isinstance(create(name), EachMethod)]
    assert each == ["gpfedrec", "fedfast"]
    assert FedEM(agg="mean").sees == FedMF().sees == "sums only"
    assert FedEM().sees == "every upload"
    assert isinstance(create("fedmf", merge="elastic"), SumMethod)
    assert isinstance(create("gpfedrec", merge="elastic"), EachMethod)


@pytest.mark.parametrize("name", FEDERATED)
def test_a_round_in_which_nobody_sends_anything_has_an_end(small: fedrec.Split, name: str) -> None:
    simulation = Simulation(create(name, **SETTINGS.get(name, {})), small.training)
    gathering = simulation.method.gather(simulation.task)
    gathering.add(Upload(torch.arange(3), torch.ones(3), {}))
    before = {key: value.clone() for key, value in simulation.server.items()}
    after = gathering.step(simulation.server, 0)
    assert after.keys() == before.keys()
    for key in {"items", "network", "weights", "vectors", "filter", "tables"} & after.keys():
        assert torch.equal(after[key], before[key]), key


def test_one_object_runs_any_number_of_federations(small: fedrec.Split) -> None:
    method = FedMF(epochs=1)
    alone, first, second = (
        Simulation(method, small.training, fedrec.federation.trainer.Setup(seed)) for seed in (0, 0, 5)
    )
    for number in range(2):
        alone.round(number)
    for number in range(2):
        second.round(number)
        first.round(number)
    everybody = torch.arange(small.data.n_users)
    assert torch.equal(first.scores(everybody), alone.scores(everybody))
    assert not torch.equal(second.scores(everybody), alone.scores(everybody))


def test_a_methods_trainer_is_set_up_as_asked(small: fedrec.Split) -> None:
    found = FedMF().trainer(small.training, fedrec.federation.trainer.Setup(5))
    assert isinstance(found, Simulation)
    assert found.task.seed == 5
    assert found.task.n_items == small.data.n_items
