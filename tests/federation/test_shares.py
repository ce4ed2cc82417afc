"""Several processes, each with a share of the clients, give one process's numbers; any number goes on where others stopped."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import fedrec
from federation.peers_at_hand import together
from fedrec.errors import ConfigError
from fedrec.federation.ledger import Ledger
from fedrec.federation.shares import Shares
from fedrec.methods import create
from fedrec.running.training import train

QUIET = {"progress": False, "device": "cpu", "rounds": 2}
CASES = {
    "fedmf": {"dim": 4, "epochs": 2},
    "fedmf participation": {"dim": 4, "epochs": 2, "participation": 0.05},
    "fedem": {"dim": 4, "epochs": 2},
    "fedem code": {"dim": 4, "epochs": 2, "variant": "code"},
    "fedem mean": {"dim": 4, "epochs": 2, "agg": "mean"},
    "fedncf": {"dim": 4, "epochs": 1},
    "pfedrec": {"dim": 4},
    "gpfedrec": {"dim": 16},
    "fedrap": {"dim": 4, "epochs": 1},
    "fedfast": {"dim": 4, "clusters": 2, "participation": 0.5},
    "colr": {"dim": 4},
    "fedcia": {"dim": 4, "variant": "gsp"},
    "hetefedrec": {},
    "fedgram": {},
    "fedslist": {},
    "ease": {},
}


def trained(case, split, **options):
    return train(create(case.split()[0], CASES[case], protocol="none"), split, **(QUIET | options))


def numbers(run):
    """All metrics of a result, flat."""
    plain = run.result.model_dump(mode="json")
    found = {}

    def walk(value, path):
        if isinstance(value, dict):
            for name, inner in value.items():
                walk(inner, f"{path}/{name}")
        elif isinstance(value, list):
            for place, inner in enumerate(value):
                walk(inner, f"{path}/{place}")
        elif isinstance(value, float):
            found[path] = value

    kept = ("validation", "test", "final", "groups", "catalogue", "bytes", "views", "client_groups", "diagnostics")
    walk({name: plain[name] for name in kept}, "")
    return found


@pytest.mark.parametrize("case", CASES)
def test_two_processes_give_the_numbers_of_one(small, case):
    alone, (first, second) = trained(case, small), together(2, lambda peers: trained(case, small, peers=peers))
    wanted = numbers(alone)
    for run in (first, second):
        assert run.result.processes == 2
        assert numbers(run) == pytest.approx(wanted, rel=2e-3, abs=1e-3)
        assert run.result.bytes == alone.result.bytes
        assert run.result.private_state_mb == pytest.approx(alone.result.private_state_mb)
    assert json.dumps(first.result.test.model_dump()) == json.dumps(second.result.test.model_dump())


def test_a_diverging_client_ends_all_processes_with_the_same_sentence(small):
    def run(peers):
        with pytest.raises(fedrec.FedrecError, match="diverged in round") as found:
            train(create("fedmf", dim=4, lr=1e30, optimizer="sgd"), small, peers=peers, **QUIET)
        return str(found.value)

    assert len(set(together(2, run))) == 1


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 3), (3, 2)])
def test_any_number_of_processes_goes_on_from_the_checkpoint_of_any_other(small, tmp_path, before, after):
    whole = trained("fedem", small, rounds=4)
    options = {"out": tmp_path / "run", "checkpoint_every": 2, "keep_checkpoints": True}
    together(before, lambda peers: trained("fedem", small, peers=peers, rounds=2, **options))
    found = together(after, lambda peers: trained("fedem", small, peers=peers, rounds=4, resume=True, **options))
    assert numbers(found[0]) == pytest.approx(numbers(whole), rel=2e-3, abs=1e-3)
    saved = fedrec.load_run(tmp_path / "run")
    assert saved.result.rounds == 4
    every = torch.arange(small.data.n_users)
    assert torch.allclose(saved.trainer.scores(every), whole.trainer.scores(every), atol=1e-4)
    sent = {name: value for name, value in saved.trainer.state().items() if name.startswith("ledger.")}
    assert all(torch.equal(value, whole.trainer.state()[name]) for name, value in sent.items())


def test_a_process_refuses_clients_of_another_one(small):
    def run(peers):
        found = trained("fedmf", small, peers=peers)
        theirs = next(user for user in small.data.user_ids if found.client(user) not in found.trainer.shares.own)
        with pytest.raises(ConfigError, match="state of its own clients only"):
            found.recommend(theirs)

    together(2, run)


@pytest.mark.parametrize("share", [0.05, 1.0])
def test_noise_on_sums_is_added_once_whoever_takes_part(small, share):
    noise = fedrec.CentralPrivacy(noise=2.0, reproducible=True)

    def work(peers=None):
        method = create("fedmf", dim=4, epochs=1, participation=share)
        return train(method, small, privacy=noise, peers=peers, **QUIET)

    alone, (first, _) = work(), together(2, lambda peers: work(peers))
    assert torch.allclose(first.trainer.server["items"], alone.trainer.server["items"], atol=1e-5)


def test_noise_of_clients_goes_on_from_secrets_of_all_processes(small, tmp_path):
    options = {"out": tmp_path / "run", "keep_checkpoints": True, "privacy": fedrec.Privacy(clip=1.0, scale=0.01)}
    together(2, lambda peers: trained("fedmf", small, peers=peers, rounds=1, **options))
    runs = [trained("fedmf", small, rounds=1, resume=True, **options) for _ in range(2)]
    secrets = [run.trainer.state()["secret.noise"] for run in runs]
    assert torch.equal(*secrets)
    assert len(np.unique(secrets[0].numpy(), axis=0)) == small.data.n_users


def test_shares_deal_out_every_client_once_and_evenly_by_size():
    counts = torch.tensor([5, 1, 9, 2, 9, 3, 7])
    parts = together(3, lambda peers: Shares(counts, peers).own)
    assert sorted(torch.cat(parts).tolist()) == list(range(7))
    assert [part.tolist() for part in parts] == [[2, 0, 1], [4, 5], [6, 3]]


COUNTS = torch.tensor([5, 1, 9, 2, 9, 3, 7])
"""In storage order the clients are 2, 4, 6, 0, 5, 3, 1; of two processes the first has 2, 6, 5 and 1."""


def of_two(work):
    return together(2, lambda peers: work(Shares(COUNTS, peers), peers.rank))


def test_one_process_has_everything_and_changes_nothing():
    shares, clients, state = Shares(COUNTS), torch.tensor([3, 1]), {"clients.x": torch.arange(7)}
    assert (shares.alone, shares.first) == (True, True)
    assert shares.own.tolist() == [2, 4, 6, 0, 5, 3, 1]
    assert shares.here(clients) is clients
    shares.require(torch.arange(7))
    assert shares.together(clients) is clients
    assert shares.whole(state) is shares.part(state) is state
    assert (shares.sums(1, 2.5), shares.most(3), shares.decided(True), shares.decided(False)) == (
        [1, 2.5],
        3,
        True,
        False,
    )
    assert shares.losses([(clients, clients)])[0][0] is clients
    assert shares.sums(2**40 + 1) == [2**40 + 1], "bytes of a long run are counted to the last one"


def test_clients_live_where_they_were_dealt_to():
    def work(shares, rank):
        assert (shares.alone, shares.first) == (False, rank == 0)
        shares.require(shares.own)
        with pytest.raises(
            ConfigError, match=r"^each of the 2 processes has the state of its own clients only; train into"
        ):
            shares.require(torch.arange(7))
        return shares.own.tolist(), shares.here(torch.tensor([1, 0, 4, 6])).tolist()

    assert of_two(work) == [([2, 6, 5, 1], [1, 6]), ([4, 0, 3], [0, 4])]


def test_rows_of_all_clients_come_each_from_where_it_lives():
    def work(shares, rank):
        rows = torch.full((7, 2), -1.0)
        rows[shares.own] = shares.own[:, None].float() * 10 + rank
        return shares.together(rows)[:, 0].tolist()

    assert of_two(work) == [[1, 10, 20, 31, 41, 50, 60]] * 2


def test_the_whole_state_is_in_storage_order_and_parts_of_it_come_back():
    """Clients' state by storage order, counts by client number, the rest as the process has it; the first one has it all."""

    def work(shares, rank):
        counts = torch.zeros(7, dtype=torch.int64)
        counts[shares.own] = shares.own + 100
        own = {"clients.x": shares.own.float()[:, None], "ledger.visits": counts, "server.items": torch.tensor([rank])}
        whole = shares.whole(own)
        if rank:
            assert whole is own
            return None
        back = shares.part(whole)
        assert torch.equal(back["clients.x"], own["clients.x"])
        assert torch.equal(back["ledger.visits"], whole["ledger.visits"])
        return {name: value.flatten().tolist() for name, value in whole.items()}

    found, nothing = of_two(work)
    assert nothing is None
    assert found == {
        "clients.x": [2, 4, 6, 0, 5, 3, 1],
        "ledger.visits": [100, 101, 102, 103, 104, 105, 106],
        "server.items": [0],
    }


def test_numbers_are_summed_compared_and_decided_over_processes():
    def work(shares, rank):
        return shares.sums(1 + rank, 0.25), shares.most(5 - rank), shares.decided(rank == 0), shares.decided(rank == 1)

    assert of_two(work) == [([3.0, 0.5], 5.0, True, False)] * 2


def test_losses_and_counts_of_all_processes_come_together():
    def work(shares, rank):
        own = [] if rank else [(shares.own[:2], torch.tensor([0.5, 1.5])), (shares.own[2:], torch.tensor([2.5, 3.5]))]
        ledger = Ledger(7)
        ledger.note(shares.own, 0, sent=shares.own, received=shares.own * 2, uploaded=bool(rank))
        found = shares.ledger(ledger)
        assert found.sent.tolist() == list(range(7))
        assert found.received.tolist() == [2 * client for client in range(7)]
        assert found.uploads.tolist() == [1, 0, 0, 1, 1, 0, 0]
        assert found.last.tolist() == [0] * 7
        ((clients, losses),) = shares.losses(own)
        return clients.tolist(), losses.tolist()

    assert of_two(work) == [([2, 6, 5, 1], [0.5, 1.5, 2.5, 3.5])] * 2
