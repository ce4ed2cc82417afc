import pytest
import torch

import fedrec
from fedrec.errors import ConfigError, FedrecError
from fedrec.federation import clients as memory
from fedrec.federation.cohorts import cohorts, cut
from fedrec.federation.payload import RowUpdate, Table, client_bytes
from fedrec.federation.simulation import Simulation
from fedrec.federation.trainer import Setup
from fedrec.methods.fedem import FedEM
from fedrec.methods.fedmf import FedMF, Local


def after(method, split, rounds=3, **options):
    simulation = Simulation(method, split.training, **options)
    for number in range(rounds):
        simulation.round(number)
    return simulation.scores(torch.arange(split.data.n_users))


@pytest.mark.parametrize(
    "method",
    [FedMF(epochs=2, lr=0.05), FedEM(epochs=2, lr=0.01, variant="code", agg_ratio=0.5)],
    ids=["fedmf", "fedem"],
)
def test_results_do_not_depend_on_cohorts_or_threads(small, method, other_threads):
    expected = after(method, small)
    scale = float(expected.abs().max())
    for size in (1, 150, 10**9):
        assert (after(method, small, cohort_samples=size) - expected).abs().max() < 1e-4 * scale
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(other_threads)
        assert (after(method, small) - expected).abs().max() < 1e-4 * scale
    finally:
        torch.set_num_threads(threads)


def test_state_on_disk_gives_the_same(small, tmp_path):
    method = Local(epochs=2, lr=0.05)
    assert torch.equal(after(method, small), after(method, small, setup=Setup(store_folder=tmp_path / "store")))
    assert (tmp_path / "store" / "items.bin").stat().st_size == small.data.n_users * small.data.n_items * 16 * 4


def test_a_run_that_cannot_fit_says_so_at_the_start(small, monkeypatch):
    monkeypatch.setattr(memory, "available", lambda device: 1000)
    with pytest.raises(ConfigError, match=r"needs about .* GB .* .store=disk"):
        Simulation(Local(), small.training)


def test_divergence_names_round_client_and_setting(small):
    with pytest.raises(FedrecError, match=r"diverged in round \d+: the loss of client \d+ .* lower lr"):
        after(FedMF(lr=1e20, optimizer="sgd", agg="sum"), small, rounds=5)


def test_cut_bounds_samples_and_waste():
    sizes = torch.tensor([100, 90, 80, 60, 45, 20, 10, 10, 10, 1])
    pieces = cut(sizes, samples=300, clients=4)
    assert [i for piece in pieces for i in range(piece.start, piece.stop)] == list(range(10))
    for piece in pieces:
        part = sizes[piece]
        assert len(part) <= 4
        assert len(part) == 1 or len(part) * part[0] <= 300
        assert 2 * part[-1] >= part[0]


def test_cohorts_never_mix_kinds():
    counts = torch.tensor([5, 9, 7, 3, 8, 6])
    clients = torch.tensor([0, 2, 3, 5])
    kinds = torch.tensor([1, 0, 1, 0])
    found = cohorts(clients, counts, kinds, samples=1000, most=1000)
    assert [c.tolist() for c in found] == [[2, 5], [0, 3]]


def test_bytes_count_what_is_sent():
    rows = torch.zeros(2, 5, dtype=torch.int32)
    update = RowUpdate(rows, torch.tensor([5, 2]), torch.zeros(2, 5, 16), n_items=50)
    assert client_bytes({"items": update}, 2).tolist() == [5 * (16 * 4 + 4), 2 * (16 * 4 + 4)]
    shared = torch.zeros(50, 16).expand(2, 50, 16)
    assert client_bytes({"items": shared}, 2).tolist() == [50 * 16 * 4] * 2
    both = {"items": Table(torch.zeros(2, 50, 16)), "bias": torch.zeros(2, 1)}
    assert client_bytes(both, 2).tolist() == [(50 * 16 + 1) * 4] * 2


def test_fedmf_bytes_follow_touched_rows(small):
    report = Simulation(FedMF(dim=8), small.training).round(0)
    assert report.bytes_down == small.data.n_users * small.data.n_items * 8 * 4
    assert 0 < report.bytes_up < report.bytes_down * 1.2


def test_untouched_clients_keep_their_state(small):
    simulation = Simulation(FedMF(participation=0.2), small.training)
    before = simulation.store.at(torch.arange(40))["user"].clone()
    report = simulation.round(0)
    changed = (simulation.store.at(torch.arange(40))["user"] != before).any(1)
    assert report.clients == 8
    assert int(changed.sum()) == 8


def test_a_trainer_holds_no_reference_to_the_test_items(demo):
    from tests_reachable import reachable

    split = fedrec.HONEST.split(demo, seed=11)
    simulation = Simulation(FedMF(), split.training)
    simulation.round(0)
    handed = {id(thing) for thing in reachable(simulation)}
    assert id(split.training.positives) in handed
    assert not handed & {id(x) for x in (split, split.test, split.validation, split.test.items.values, split.data)}
