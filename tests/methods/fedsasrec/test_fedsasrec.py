import math
from dataclasses import replace

import pytest
import torch

from fedrec.data.training import Ragged, TrainingView
from fedrec.errors import ConfigError
from fedrec.federation.privacy import Privacy, PrivacyStage
from fedrec.federation.simulation import Simulation
from fedrec.federation.trainer import Setup
from fedrec.methods.central.sasrec import Sasrec
from fedrec.methods.fedsasrec import FedSasrec
from fedrec.methods.fedsasrec.losses import sampled_losses
from fedrec.parts.transformer import Shape
from fedrec.testing import MethodSuite, few

SMALL = {"dim": 8, "layers": 1, "length": 20, "block": 8, "lr": 0.003, "dropout": 0.1, "init_std": 0.1}


class TestFedSasrec(MethodSuite):
    method = FedSasrec
    options = SMALL | {"block": 100, "lr": 0.01}
    rounds = 20
    floor = 0.4


class TestEpochs(MethodSuite):
    method = FedSasrec
    options = SMALL | {"block": 100, "lr": 0.01, "local": "epochs", "sampled": 50}
    rounds = 10
    floor = 0.3


class TestSasrec(MethodSuite):
    method = Sasrec
    options = SMALL | {"block": 100, "lr": 0.01}
    rounds = 20
    floor = 0.4
    federated = False


def trained(method, view, rounds=3, **more):
    trainer = method.trainer(view, Setup(0)) if not more else Simulation(method, view, **more)
    for number in range(rounds):
        trainer.round(number)
    return trainer


def untimed(view):
    return replace(view, history=None)


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("sampled", [None, 50])
def test_gradient_rounds_are_the_steps_of_centralised_training(sampled, timed):
    view = few(0, 30).training if timed else untimed(few(0, 30).training)
    options = SMALL | {"sampled": sampled}
    federated = trained(FedSasrec(**options), view, cohort_samples=200).server
    centralised = trained(Sasrec(**options), view).model
    assert set(federated) == set(centralised)
    assert float(federated["steps"]) == float(centralised["steps"]) == 3 * 4
    for name, value in centralised.items():
        assert torch.allclose(federated[name], value, rtol=1e-4, atol=5e-5 * float(value.abs().max())), name


def same(one, other, room=5e-5):
    for name, value in one.items():
        assert torch.allclose(other[name], value, rtol=1e-4, atol=room * float(value.abs().max())), name


@pytest.mark.parametrize("sampled", [None, 50])
def test_one_local_step_is_the_gradient(sampled):
    view = few(0, 30).training
    options = SMALL | {"sampled": sampled}
    gradient = trained(FedSasrec(**options), view)
    epochs = trained(FedSasrec(**options, local="epochs", epochs=1, local_lr=0.3), view)
    same(gradient.server, epochs.server)
    sent = [
        simulation.ledger.sent - 4 * simulation.ledger.uploads * (simulation is gradient)
        for simulation in (gradient, epochs)
    ]
    assert torch.equal(*sent)


@pytest.mark.parametrize("method", [FedSasrec, Sasrec])
def test_without_time_the_numbers_of_items_are_no_order_to_learn(method):
    """Everybody has the same 12 items: in ascending order the next one would be certain, in none it is one of those that are left."""
    items = torch.arange(12).repeat(40).numpy()
    lists = Ragged.build(torch.arange(40).repeat_interleave(12).numpy(), items, 40)
    trainer = method(**SMALL | {"lr": 0.03}).trainer(TrainingView(40, 12, lists, lists), Setup(0))
    for number in range(40):
        loss = trainer.round(number).loss
    nobody_knows = sum(math.log(left) for left in range(1, 12)) / 11
    assert 0.95 * nobody_knows < loss < math.log(12)


def test_more_local_steps_are_not():
    view = few(0, 30).training
    one, two = (trained(FedSasrec(**SMALL, local="epochs", epochs=n), view, 1).server for n in (1, 2))
    assert not torch.allclose(one["items"], two["items"], atol=1e-4)


def test_all_items_drawn_is_the_loss_against_all_items():
    view = few(0, 30).training
    whole = trained(FedSasrec(**SMALL), view)
    same(whole.server, trained(FedSasrec(**SMALL, sampled=view.n_items), view).server)


def test_a_drawn_item_stands_for_those_that_were_not_drawn():
    shape, generator = Shape(8, 1, 2, 10), torch.Generator().manual_seed(0)
    network = shape.split(shape.initial(0.3, generator))
    window, shared = torch.tensor([[0, 1, 2, 3]]), torch.tensor([3, 5, 6])
    own, others = torch.zeros(1, 4, 8), torch.zeros(3, 8)  # every logit is 0
    found = sampled_losses(shape, network, own, window, others, shared, 60, torch.tensor([3]), ())
    assert float(found) == pytest.approx(3 * math.log(4 + 60 / 3 * 2))


def test_a_round_is_everybody_once_in_blocks_of_another_order_each():
    view = few(0, 30).training
    method = FedSasrec(**SMALL)
    task = Simulation(method, view).task
    rounds = [[method.participants(task, {}, number * 4 + part) for part in range(4)] for number in range(2)]
    for found in rounds:
        assert torch.equal(torch.cat(found).sort().values, torch.arange(30))
        assert {len(part) for part in found} <= {7, 8}
    assert not torch.equal(rounds[0][0], rounds[1][0])


def test_the_newest_items_count_and_what_is_older_does_not():
    options = SMALL | {"length": 5}
    trainer = trained(FedSasrec(**options), few(0, 30).training, 1)
    history = trainer.store.at(torch.arange(30))["history"]
    scores = trainer.method.config.scores(trainer.server["items"], trainer.server["network"], history)
    for place, moves in ((0, False), (-1, True)):
        changed = history.clone()
        index = (history >= 0).sum(1) - 1 if place else torch.zeros(30, dtype=torch.int64)
        changed[torch.arange(30), index] = (changed[torch.arange(30), index] + 1) % trainer.task.n_items
        after = trainer.method.config.scores(trainer.server["items"], trainer.server["network"], changed)
        assert bool(((after - scores).abs().amax(1) > 1e-4).all()) == moves
    later = history[:, :1].clone()
    private = trainer.store.at(torch.arange(30))
    folded = trainer.method.fold_in(trainer.task, private, later)["history"]
    expected = trainer.method.config.scores(trainer.server["items"], trainer.server["network"], folded)
    assert torch.allclose(trainer.scores(torch.arange(30), later=later), expected, atol=1e-5)


def test_gradients_are_out_of_reach_of_a_privacy_stage_and_single_changes_are_not():
    stage = PrivacyStage(Privacy(clip=1.0, scale=0.1, reproducible=True), 0)
    view = few(0, 30).training
    with pytest.raises(ConfigError, match="local=epochs"):
        Simulation(FedSasrec(**SMALL), view, Setup(privacy=stage))
    Simulation(FedSasrec(**SMALL, local="epochs"), view, Setup(privacy=stage)).round(0)


def test_heads_share_the_embedding():
    with pytest.raises(ConfigError, match="multiple of heads"):
        FedSasrec(dim=9)
