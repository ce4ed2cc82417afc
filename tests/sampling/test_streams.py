from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
import torch

from fedrec.compute.cpu import compiled, for_clients
from fedrec.sampling import cpu_negatives as sampling_kernels
from fedrec.sampling import cpu_streams as kernels
from fedrec.sampling import streams
from fedrec.sampling.streams import Purpose

SEEDS = [0, 7, 2**63 - 1, 2**63, 2**64 - 1, -1]


def unsigned(x: torch.Tensor) -> list[int]:
    return [value & 0xFFFFFFFFFFFFFFFF for value in x.flatten().tolist()]


@compiled
def compiled_bits(seed: int, purpose: int, round: int, client: int, n: int, out: np.ndarray) -> None:
    key = kernels.client_key(seed, purpose, round, client)
    for i in range(n):
        out[0, i] = kernels.draw(key, i)
        out[1, i] = np.uint64(kernels.below(key, i, 1682))


@pytest.mark.parametrize("seed", SEEDS)
def test_compiled_and_torch_streams_have_the_same_bits(seed):
    clients, index = torch.tensor([0, 1, 942, 2**40]), torch.arange(50)
    keys = streams.keys(seed, Purpose.NOISE, 3, clients)[:, None]
    bits, small = streams.bits(keys, index), streams.below(keys, index, 1682)
    for row, client in enumerate(clients.tolist()):
        out = np.empty((2, 50), np.uint64)
        compiled_bits(np.uint64(seed & 0xFFFFFFFFFFFFFFFF), int(Purpose.NOISE), 3, client, 50, out)
        assert out[0].tolist() == unsigned(bits[row])
        assert out[1].tolist() == small[row].tolist()


def test_purposes_named_in_kernels_match_the_enum():
    assert int(kernels.SHUFFLE) == Purpose.SHUFFLE
    assert int(sampling_kernels.NEGATIVES) == Purpose.NEGATIVES


def test_splitmix64_known_values():
    # The published first outputs of splitmix64 started at 1234567: key + (i + 1) * step, finalised.
    bits = streams.bits(torch.tensor(1234567), torch.arange(3))
    assert unsigned(bits) == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_streams_differ_by_seed_purpose_round_client_and_index():
    clients, index = torch.arange(20), torch.arange(20)
    seen = set()
    for seed in (0, 1):
        for purpose in (Purpose.SHUFFLE, Purpose.NEGATIVES):
            for round in (0, 1):
                seen |= set(unsigned(streams.bits(streams.keys(seed, purpose, round, clients)[:, None], index)))
    assert len(seen) == 2 * 2 * 2 * 20 * 20


def test_numbers_of_a_client_do_not_depend_on_the_cohort():
    index = torch.arange(9)
    together = streams.bits(streams.keys(5, Purpose.NOISE, 2, torch.tensor([4, 9, 1]))[:, None], index)
    alone = streams.bits(streams.keys(5, Purpose.NOISE, 2, torch.tensor([9]))[:, None], index)
    assert torch.equal(together[1:2], alone)


def test_inputs_are_left_alone():
    keys, index = torch.arange(4), torch.arange(4)
    for draw in (streams.bits, streams.uniform, streams.normal, streams.laplace):
        draw(keys, index)
    streams.child(keys, 3)
    assert torch.equal(keys, torch.arange(4))
    assert torch.equal(index, torch.arange(4))


def test_moments():
    keys, index = streams.keys(1, Purpose.NOISE, 0, torch.arange(10))[:, None], torch.arange(100_000)
    u, z, e = (draw(keys, index) for draw in (streams.uniform, streams.normal, streams.laplace))
    assert u.min() > 0
    assert u.max() < 1
    assert u.mean().item() == pytest.approx(0.5, abs=2e-3)
    assert u.var().item() == pytest.approx(1 / 12, abs=1e-3)
    assert z.mean().item() == pytest.approx(0, abs=5e-3)
    assert z.std().item() == pytest.approx(1, abs=5e-3)
    assert (z**4).mean().item() == pytest.approx(3, abs=0.05)
    assert e.mean().item() == pytest.approx(0, abs=8e-3)
    assert e.var().item() == pytest.approx(2, abs=0.03)
    assert e.abs().mean().item() == pytest.approx(1, abs=8e-3)
    # Neighbouring indices and neighbouring clients are uncorrelated (standard error 1e-3).
    assert abs(torch.corrcoef(torch.stack([u[0, 1:], u[0, :-1]]))[0, 1].item()) < 0.015
    assert abs(torch.corrcoef(u[:2])[0, 1].item()) < 0.015


def test_below_is_uniform():
    drawn = streams.below(streams.keys(3, Purpose.NEGATIVES, 0, torch.arange(100))[:, None], torch.arange(1000), 50)
    counts = torch.bincount(drawn.flatten(), minlength=50).double()
    chi2 = ((counts - 2000) ** 2 / 2000).sum().item()
    assert len(counts) == 50
    assert 20 < chi2 < 95  # 49 degrees of freedom: outside with probability below 1e-4


@pytest.mark.parametrize("width", [1, 2, 255, 700])
def test_epoch_orders_are_permutations_and_equal_the_sorted_ones(width):
    clients = torch.tensor([3, 0, 12, 5])
    counts = torch.tensor([width, 0, (width + 1) // 2, 1])
    orders = streams.epoch_orders(11, 2, clients, 1, counts, width)
    assert torch.equal(orders, streams.sorted_orders(11, 2, clients, 1, counts, width))
    for order, count in zip(orders, counts.tolist(), strict=True):
        assert sorted(order[:count].tolist()) == list(range(count))
        assert order[count:].tolist() == list(range(count, width))


def test_epochs_rounds_and_clients_are_shuffled_differently():
    clients, counts = torch.tensor([0, 1]), torch.tensor([100, 100])
    orders = [streams.epoch_orders(0, round, clients, epoch, counts, 100) for round in (0, 1) for epoch in (0, 1)]
    rows = torch.cat(orders)
    assert len({tuple(row.tolist()) for row in rows}) == 8
    # A first element per client and epoch: all hundred places are hit about equally often.
    first = streams.epoch_orders(0, 0, torch.arange(20_000), 0, torch.full((20_000,), 100), 100)[:, 0]
    chi2 = ((torch.bincount(first, minlength=100).double() - 200) ** 2 / 200).sum().item()
    assert 50 < chi2 < 165  # 99 degrees of freedom


@pytest.mark.parametrize("unit", [float("inf"), 1e6, 1e-3])
@pytest.mark.parametrize("costs", [[], [5], [0, 0, 0], [100, 1, 1, 1, 1, 1, 50, 3]])
def test_for_clients_visits_every_client_once(costs, unit):
    visits = np.zeros(len(costs), np.int64)

    def work(first: int, last: int) -> None:
        visits[first:last] += 1

    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for_clients(work, np.array(costs, np.int64), unit=unit)
    finally:
        torch.set_num_threads(threads)
    assert (visits == 1).all()


def test_for_clients_passes_errors_on():
    def work(first: int, last: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        for_clients(work, np.ones(100))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_has_the_same_bits():
    clients, index, counts = torch.arange(50), torch.arange(300), torch.arange(50) * 6
    here = streams.bits(streams.keys(-3, Purpose.NOISE, 2, clients)[:, None], index)
    there = streams.bits(streams.keys(-3, Purpose.NOISE, 2, clients.cuda())[:, None], index.cuda())
    assert torch.equal(here, there.cpu())
    orders = streams.epoch_orders(1, 2, clients.cuda(), 3, counts.cuda(), 300)
    assert torch.equal(orders.cpu(), streams.epoch_orders(1, 2, clients, 3, counts, 300))


def test_orders_are_the_same_where_nothing_is_compiled(monkeypatch):
    clients, counts = torch.tensor([3, 0, 12]), torch.tensor([9, 4, 0])
    compiled_orders = streams.epoch_orders(11, 2, clients, 1, counts, 9)
    monkeypatch.setattr(streams.dispatch, "compiled_on", lambda device: None)
    monkeypatch.setattr(streams, "fill_orders", None)
    assert torch.equal(streams.epoch_orders(11, 2, clients, 1, counts, 9), compiled_orders)


def test_a_wide_range_of_integers_is_drawn_evenly():
    """Up to two thousand million; a fifth of all numbers lies in each fifth."""
    n = 2**31 - 1
    drawn = streams.below(streams.keys(3, Purpose.OTHER, 0, torch.arange(100))[:, None], torch.arange(500), n)
    assert drawn.min() >= 0
    assert drawn.max() < n
    fifths = torch.bincount(drawn.flatten() * 5 // n, minlength=5)
    assert (fifths - 10_000).abs().max() < 5 * (50_000 * 0.2 * 0.8) ** 0.5


def test_children_of_a_key_are_streams_of_their_own():
    keys = streams.keys(1, Purpose.OTHER, 0, torch.arange(3))
    found = {value for number in range(4) for value in unsigned(streams.child(keys, number))}
    assert len(found | set(unsigned(keys))) == 15
    each = streams.child(keys, torch.tensor([5, 6, 7]))
    assert [int(streams.child(keys, number)[place]) for place, number in enumerate((5, 6, 7))] == each.tolist()
    assert torch.equal(streams.child(keys, -1), streams.child(keys, 2**64 - 1))


def test_numbers_are_made_on_the_device_of_the_clients():
    """Where another device is the default, what is made without naming one does not fit the rest."""
    clients, index, counts = torch.tensor([3, 0, 12]), torch.arange(9), torch.tensor([9, 4, 0])
    drawn = streams.normal(streams.keys(-3, Purpose.NOISE, 2, clients)[:, None], index)
    orders = streams.sorted_orders(1, 2, clients, 3, counts, 9)
    with torch.device("meta"):
        keys = streams.keys(-3, Purpose.NOISE, 2, clients)
        assert torch.equal(streams.normal(keys[:, None], index), drawn)
        assert torch.equal(streams.sorted_orders(1, 2, clients, 3, counts, 9), orders)


def test_transformed_numbers_are_the_inverse_distributions():
    """Thousandths of the way up: what lies below so much of a normal and of a Laplace distribution."""
    shares = [0.001, 0.25, 0.5, 0.75, 0.999]
    normal = streams.to_normal(torch.tensor(shares, dtype=torch.float64))
    assert normal.tolist() == pytest.approx([NormalDist().inv_cdf(share) for share in shares], abs=1e-9)
    laplace = streams.to_laplace(torch.tensor(shares, dtype=torch.float64))
    below = [0.5 * math.exp(x) if x < 0 else 1 - 0.5 * math.exp(-x) for x in laplace.tolist()]
    assert below == pytest.approx(shares, abs=1e-12)


def test_no_bits_give_zero_or_one():
    ends = streams.to_uniform(torch.tensor([0, -1, 1 << 12]))
    assert ends.tolist() == [2.0**-53, 1 - 2.0**-53, 1.5 * 2.0**-52]
