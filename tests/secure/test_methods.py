"""Methods whose server sees sums, with their clients at three sites and a secure sum between these and the server."""

from __future__ import annotations

import pytest
import torch

from fedrec.federation.clients import Clients
from fedrec.federation.method import Sums
from fedrec.federation.server import Server
from fedrec.federation.simulation import Simulation
from fedrec.federation.task import Task
from fedrec.federation.total import Total
from fedrec.federation.trainer import RoundReport, Setup
from fedrec.methods import create
from fedrec.secure.in_process import secure_sum
from fedrec.secure.suitable import require_sums

SITES = torch.arange(40).split([9, 13, 18])


def behind_secure_sums(name, options, split, rounds):
    """The server after so many rounds, and totals as they came."""
    method, view, setup = require_sums(create(name, **options)), split.training, Setup(seed=0)
    task = Task(view.n_clients, view.n_items, torch.from_numpy(view.positives.counts), 0, setup.device)
    server, sites = Server(method, task), [Clients(method, view, task, setup, share=share) for share in SITES]
    for number in range(rounds):
        chosen, totals = server.participants(number), list[Total]()
        for site, share in zip(sites, SITES, strict=True):
            sums = Sums(method, task)
            site.train(chosen[torch.isin(chosen, share)], number, server, sums, RoundReport())
            totals.append(sums.total)
        whole = Sums(method, task)
        whole.total = secure_sum(totals).total
        server.step(whole, number)
    return server


@pytest.mark.parametrize(
    ("name", "options", "rounds", "exact"),
    [
        ("fedgram", {"lam": 20}, 1, True),
        ("fedslist", {}, 1, True),
        ("fedgains", {"gain_rounds": 1}, 3, False),
        ("fedmf", {"dim": 4, "lr": 0.05, "epochs": 2, "participation": 0.5}, 2, False),
        ("popularity", {}, 1, True),
    ],
)
def test_a_server_behind_a_secure_sum_is_that_of_the_simulation(small, name, options, rounds, exact):
    server, simulation = (
        behind_secure_sums(name, options, small, rounds),
        Simulation(create(name, **options), small.training),
    )
    for number in range(rounds):
        simulation.round(number)
    assert server.state.keys() == simulation.server.keys()
    for key, value in simulation.server.items():
        found = server.state[key]
        assert found.dtype == value.dtype
        if exact or not value.is_floating_point():
            assert torch.equal(found, value), key
        else:
            assert torch.allclose(found, value, atol=1e-5), key
