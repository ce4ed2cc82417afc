"""What every client did and cost, as the engine counts it."""

import torch

import fedrec
from fedrec.federation.ledger import FIELDS, Ledger
from fedrec.federation.simulation import Simulation
from fedrec.federation.trainer import RoundReport
from fedrec.methods.fedem import FedEM
from fedrec.methods.fedmf import FedMF, Local


def noted() -> Ledger:
    """Client 0 takes part in rounds 0, 1 and 3, client 1 in 0 and 3, client 2 never; nothing is sent in round 1."""
    ledger = Ledger(3)
    both, one = torch.tensor([1, 0]), torch.tensor([0])
    ledger.note(both, 0, sent=torch.tensor([10, 20]), received=torch.tensor([1, 2]), uploaded=True)
    ledger.note(one, 1, sent=torch.tensor([0]), received=torch.tensor([4]), uploaded=False)
    ledger.note(both, 3, sent=torch.tensor([30, 40]), received=torch.tensor([8, 16]), uploaded=True)
    return ledger


def test_counts_by_hand() -> None:
    ledger = noted()
    assert ledger.visits.tolist() == [3, 2, 0]
    assert ledger.uploads.tolist() == [2, 2, 0]
    assert ledger.consecutive.tolist() == [1, 0, 0], "a first visit follows no other, a pause breaks the row"
    assert ledger.last.tolist() == [3, 3, -2]
    assert ledger.sent.tolist() == [60, 40, 0]
    assert ledger.received.tolist() == [22, 9, 0]


def test_state_is_everything_and_is_copied() -> None:
    saved, again = noted(), Ledger(3)
    again.load_state(saved.state())
    assert set(saved.state()) == set(FIELDS) == set(vars(saved))
    saved.note(torch.tensor([2]), 4, sent=torch.tensor([1]), received=torch.tensor([1]), uploaded=True)
    assert all(torch.equal(again.state()[name], value) for name, value in noted().state().items())


def run(method: fedrec.federation.arrows.Arrows, split: fedrec.Split, rounds: int = 3) -> tuple[Ledger, RoundReport]:
    simulation, whole = Simulation(method, split.training, cohort_samples=200), RoundReport()
    for number in range(rounds):
        whole.add(simulation.round(number))
    return simulation.ledger, whole


def test_bytes_of_the_clients_are_those_of_the_report(small: fedrec.Split) -> None:
    for method in (FedMF(epochs=1, participation=0.3), FedEM(epochs=1, merge="static", agg_ratio=0.5)):
        ledger, report = run(method, small)
        assert int(ledger.sent.sum()) == report.bytes_up > 0
        assert int(ledger.received.sum()) == report.bytes_down > 0
        assert int(ledger.visits.sum()) == report.clients
        assert bool((ledger.sent[ledger.visits == 0] == 0).all())


def test_only_who_sends_something_uploads(small: fedrec.Split) -> None:
    ledger, _ = run(FedEM(epochs=1, merge="static", agg_ratio=0.25), small)
    assert bool((ledger.visits == 3).all())
    assert bool((ledger.consecutive == 2).all())
    assert int(ledger.uploads.sum()) == 30
    assert torch.equal(ledger.uploads > 0, ledger.sent > 0)
    assert not bool(run(Local(epochs=1), small)[0].uploads.any())


def test_a_resumed_federation_counts_on(small: fedrec.Split) -> None:
    method = FedMF(epochs=1, participation=0.3)
    whole, first, second = (Simulation(method, small.training) for _ in range(3))
    for number in range(4):
        whole.round(number)
    for number in range(2):
        first.round(number)
    second.load_state({name: value.clone() for name, value in first.state().items()})
    for number in (2, 3):
        second.round(number)
    assert int(whole.ledger.consecutive.sum()) > 0
    for name, value in whole.ledger.state().items():
        assert torch.equal(second.ledger.state()[name], value), name
