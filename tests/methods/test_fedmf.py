import torch
from torch.nn.functional import binary_cross_entropy_with_logits

import fedrec
from fedrec.federation.simulation import Simulation
from fedrec.methods.fedmf import FedMF, Local
from fedrec.testing import MethodSuite


class TestFedMF(MethodSuite):
    method = FedMF
    options = {"lr": 0.02, "init_std": 0.05}
    floor = 0.40


class TestLocal(MethodSuite):
    method = Local
    options = {"lr": 0.1, "init_std": 1.0}
    at_chance = "a client's own items say nothing of items it never touched"


def test_gradient_sum_is_centralised_gradient_descent(small):
    """Rule A with one full-batch SGD step of every client equals one step on the sum of all losses."""
    lr = 0.3
    simulation = Simulation(FedMF(agg="sum", optimizer="sgd", epochs=1, lr=lr, batch_size=10**6, dim=4), small.training)
    everybody = torch.arange(small.data.n_users)
    user = simulation.store.at(everybody)["user"].clone().requires_grad_()
    items = simulation.server["items"].clone().requires_grad_()
    samples = simulation.sampler.draw(everybody, negatives=4, seed=0, round=0)
    logits = (user[:, None] * items[samples.items.long()]).sum(2)
    valid = torch.arange(logits.shape[1]) < samples.counts[:, None]
    loss = binary_cross_entropy_with_logits(logits, samples.labels, reduction="none")
    ((loss * valid).sum(1) / samples.counts).sum().backward()
    simulation.round(0)
    assert torch.allclose(simulation.server["items"], items - lr * items.grad, atol=1e-5)
    assert torch.allclose(simulation.store.at(everybody)["user"], user - lr * user.grad, atol=1e-5)


def test_a_client_starts_from_the_servers_table(small):
    """After a round the next download is the aggregate, not the client's own rows."""
    simulation = Simulation(FedMF(), small.training)
    simulation.round(0)
    payload = simulation.method.broadcast(simulation.task, simulation.server, torch.tensor([0, 1]))
    assert torch.equal(payload["items"][0], simulation.server["items"])
    assert payload["items"].stride(0) == 0, "a shared table must not be copied per client"


def test_local_sends_nothing_and_learns_nothing_about_others(small):
    report = Simulation(Local(), small.training).round(0)
    assert report.bytes_up == report.bytes_down == 0


def test_local_training_stays_at_chance_under_the_honest_protocol(honest, paper):
    """A private table is a memory of negatives: useless if honest, and all one needs if the protocol leaks."""
    found = {}
    for split in (honest, paper):
        method = Local(lr=0.1, init_std=1.0, epochs=5, common_init=True)
        run = fedrec.train(method, split, rounds=40, evaluate_every=40, progress=False, device="cpu")
        found[split.protocol.name] = run.result.final.test.sampled["hr@10"]
    assert found["honest"] < 0.15
    assert found["paper"] > 0.6


def test_honest_fedmf_beats_popularity(honest):
    popular = fedrec.train(fedrec.create("popularity"), honest, progress=False, device="cpu").test["sampled"]["hr@10"]
    run = fedrec.train(fedrec.create("fedmf", data="demo"), honest, evaluate_every=5, progress=False, device="cpu")
    assert run.test["sampled"]["hr@10"] > popular + 0.1
