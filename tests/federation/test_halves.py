"""Clients in several places and one server: what a site runs is what the simulation runs."""

from __future__ import annotations

import pytest
import torch

from fedrec.federation.clients import Clients
from fedrec.federation.method import Sums, Uploads
from fedrec.federation.server import Server
from fedrec.federation.simulation import Simulation
from fedrec.federation.task import Task
from fedrec.federation.trainer import RoundReport, Setup
from fedrec.methods import create

OPTIONS = {"dim": 4, "lr": 0.05, "epochs": 2}


def in_shares(name, options, split, shares, rounds):
    """The same federation with its clients in several places."""
    method, view, setup = create(name, **options), split.training, Setup(seed=0)
    task = Task(view.n_clients, view.n_items, torch.from_numpy(view.positives.counts), 0, setup.device)
    server, places = Server(method, task), [Clients(method, view, task, setup, share=share) for share in shares]
    for number in range(rounds):
        chosen, whole = server.participants(number), method.gather(task)
        for place, share in zip(places, shares, strict=True):
            part = method.gather(task)
            place.train(chosen[torch.isin(chosen, share)], number, server, part, RoundReport())
            if isinstance(whole, Sums):
                whole.total = whole.total.merge(part.total)
            else:
                assert isinstance(whole, Uploads)
                whole.uploads += part.uploads
        server.step(whole, number)
    return server, places


@pytest.mark.parametrize(
    ("name", "options"),
    [("fedmf", OPTIONS), ("fedmf", OPTIONS | {"participation": 0.4}), ("fedem", OPTIONS | {"agg_ratio": 0.5})],
)
def test_clients_in_three_places_are_the_simulation_to_rounding(small, name, options):
    order = torch.randperm(40, generator=torch.Generator().manual_seed(1))
    shares = [order[:7], order[7:20], order[20:]]
    server, places = in_shares(name, options, small, shares, 3)
    simulation = Simulation(create(name, **options), small.training)
    for number in range(3):
        simulation.round(number)
    for share, place in zip(shares, places, strict=True):
        found, wanted = place.scores(share, server), simulation.scores(share)
        assert (found - wanted).abs().max() < 1e-4 * wanted.abs().max()
        for name in place.store.tensors:
            assert len(place.store.tensors[name]) == len(share)


def test_a_place_holds_the_state_of_its_own_clients_only(small):
    share = torch.tensor([3, 8, 30])
    _, (place,) = in_shares("fedmf", {"dim": 4}, small, [share], 1)
    assert place.store.tensors["user"].shape == (3, 4)
    assert place.ledger.visits.nonzero()[:, 0].tolist() == [3, 8, 30]
    assert torch.equal(place.order.sort().values, share)
