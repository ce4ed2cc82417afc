"""What clients' tables are made of is what they score with."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fedrec
from federation.peers_at_hand import together
from fedrec.federation.mixture import Mixture, describe_shares
from fedrec.federation.simulation import Simulation
from fedrec.methods import create

EVERYBODY = torch.arange(40)
SHORT: dict[str, Any] = {"epochs": 2, "adapter_epochs": 2, "dim": 4, "lr": 0.1}
MODES = ("replace", "static", "dynamic", "elastic", "none")


def trained(small: fedrec.Split, method: Any, rounds: int = 2) -> Simulation:
    simulation = Simulation(method, small.training)
    for number in range(rounds):
        simulation.round(number)
    return simulation


@pytest.mark.parametrize("merge", MODES)
@pytest.mark.parametrize("name", ["fedem", "fedmf"])
def test_a_mixture_gives_the_table_that_clients_score_with(small: fedrec.Split, name: str, merge: str) -> None:
    simulation = trained(small, create(name, merge=merge, **SHORT))
    seen = []
    for clients, found in simulation.mixtures(EVERYBODY):
        users = simulation.store.at(clients)["user"]
        scores = (found.merged @ users[:, :, None])[:, :, 0]
        assert torch.allclose(scores, simulation.scores(clients), atol=1e-5)
        assert float(found.share.min()) >= 0
        assert float(found.share.max()) <= 1
        seen += clients.tolist()
    assert sorted(seen) == EVERYBODY.tolist()


def test_clients_without_a_table_of_the_server_have_their_own(small: fedrec.Split) -> None:
    simulation = trained(small, create("fedem", merge="replace", agg_ratio=0.25, **SHORT))
    shares = {
        int(c): found.share[i] for clients, found in simulation.mixtures(EVERYBODY) for i, c in enumerate(clients)
    }
    assert sum(bool((share == 1).all()) for share in shares.values()) == 10
    assert sum(bool((share == 0).all()) for share in shares.values()) == 30


def test_a_client_that_never_trained_has_all_from_the_server(small: fedrec.Split) -> None:
    simulation = trained(small, create("fedmf", merge="static", rho=0.3, **SHORT), rounds=0)
    ((_, found),) = simulation.mixtures(EVERYBODY)
    assert bool((found.share == 1).all())


def test_clients_of_different_size_come_in_blocks_of_their_own(small: fedrec.Split) -> None:
    simulation = trained(small, create("hetefedrec", merge="elastic", sizes=[2, 3, 4]), rounds=1)
    widths = [found.own.shape[2] for _, found in simulation.mixtures(EVERYBODY)]
    assert sorted(widths) == [2, 3, 4]
    assert simulation.method.merges


@pytest.mark.parametrize("name", ["fedmf", "hetefedrec", "ease"])
def test_who_does_not_merge_has_no_mixture(small: fedrec.Split, name: str) -> None:
    method = create(name)
    assert not method.merges
    trainer = method.trainer(small.training, fedrec.federation.trainer.Setup())
    assert list(trainer.mixtures(EVERYBODY)) == []


def test_a_share_of_one_is_the_servers_row() -> None:
    own, server = torch.zeros(1, 2, 3), torch.ones(1, 2, 3)
    assert Mixture(own, server, torch.tensor([[1.0, 0.25]])).merged[0, :, 0].tolist() == [1.0, 0.25]


def of(*shares: list[float]) -> Mixture:
    table = torch.zeros(len(shares), len(shares[0]), 2)
    return Mixture(table, table, torch.tensor(shares))


def test_shares_are_summed_up_by_hand() -> None:
    """Forty rows with 0, 0.1 .. 0.9 four times; a client without anything of the server does not count."""
    row = [step / 10 for step in range(10)]
    found = describe_shares([of(row, row), of([0.0] * 10), of(row, row)])
    assert found["clients"] == 4
    assert found["mean"] == pytest.approx(0.45)
    expected = {"0.05": 0.0, "0.25": 0.2, "0.5": 0.4, "0.75": 0.7, "0.95": 0.9}
    assert found["quantiles"] == pytest.approx(expected, abs=1.5e-3)


def test_one_share_is_every_quantile_to_half_a_thousandth() -> None:
    for share in (0.25, 1.0, 0.0004):
        found = describe_shares([of([share])])
        assert (found["clients"], found["mean"]) == (1, pytest.approx(share))
        assert list(found["quantiles"]) == ["0.05", "0.25", "0.5", "0.75", "0.95"]
        assert all(abs(value - share) <= 1.001e-3 for value in found["quantiles"].values())
        assert all(0 < value < 1 for value in found["quantiles"].values())


def test_without_a_download_there_is_nothing_to_say() -> None:
    nobody = Mixture(torch.zeros(0, 3, 2), torch.zeros(0, 3, 2), torch.zeros(0, 3))
    for mixtures in ([], [of([0.0, 0.0])], [nobody]):
        assert describe_shares(mixtures) == {"clients": 0}


def test_several_processes_describe_what_all_of_them_have() -> None:
    parts = [of([0.1, 0.3], [0.0, 0.0]), of([0.5, 0.9])]
    for found in together(2, lambda peers: describe_shares([parts[peers.rank]], peers)):
        assert found == describe_shares(parts)
        assert found["clients"] == 2


def test_a_federation_says_how_much_of_its_clients_tables_is_the_servers(small: fedrec.Split) -> None:
    said = trained(small, create("fedmf", merge="static", rho=0.3, **SHORT)).diagnostics()["server_share"]
    assert (said["clients"], said["mean"]) == (40, pytest.approx(0.3))
    assert "server_share" not in trained(small, create("fedmf", dim=4), rounds=0).diagnostics()
