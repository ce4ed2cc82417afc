"""Everybody is in exactly one cohort; cohorts are of one kind, like in size, and small enough."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedrec.federation.cohorts import cohorts, cut, size_order


@given(
    sizes=st.lists(st.integers(0, 60), max_size=40),
    samples=st.integers(1, 400),
    most=st.integers(1, 30),
    waste=st.sampled_from([2, 16]),
    kinds=st.integers(0, 3),
    taken=st.randoms(use_true_random=False),
)
def test_cohorts_divide_the_clients(sizes, samples, most, waste, kinds, taken):
    counts = torch.tensor(sizes, dtype=torch.int64)
    clients = torch.tensor(sorted(taken.sample(range(len(sizes)), len(sizes) // 2)), dtype=torch.int64)
    labels = clients % kinds if kinds else None
    found = cohorts(clients, counts, labels, samples=samples, most=most, waste=waste)
    assert sorted(client for cohort in found for client in cohort.tolist()) == clients.tolist()
    for cohort in found:
        width = counts[cohort]
        assert 1 <= len(cohort) <= most
        assert len(cohort) == 1 or len(cohort) * int(width[0]) <= samples
        assert len(cohort) == 1 or waste * int(width[-1]) >= int(width[0]), "padding is bounded"
        assert width.tolist() == sorted(width.tolist(), reverse=True)
        assert labels is None or len({client % kinds for client in cohort.tolist()}) == 1
    if kinds:
        order = [int(cohort[0]) % kinds for cohort in found]
        assert order == sorted(order), "kind after kind"


def test_clients_of_equal_size_keep_their_order():
    assert size_order(torch.tensor([3, 5, 3, 0, 5])).tolist() == [1, 4, 0, 2, 3]


@pytest.mark.parametrize(
    ("sizes", "limits", "pieces"),
    [
        ([10] * 6, {"samples": 1000, "clients": 100}, [(0, 6)]),
        ([10] * 6, {"samples": 40, "clients": 100}, [(0, 4), (4, 6)]),
        ([10] * 6, {"samples": 1000, "clients": 5}, [(0, 5), (5, 6)]),
        ([10] * 3, {"samples": 9, "clients": 5}, [(0, 1), (1, 2), (2, 3)]),
        ([0] * 3, {"samples": 2, "clients": 5}, [(0, 2), (2, 3)]),
        ([8, 4], {"samples": 1000, "clients": 5}, [(0, 2)]),
        ([9, 4], {"samples": 1000, "clients": 5}, [(0, 1), (1, 2)]),
        ([9, 4], {"samples": 1000, "clients": 5, "waste": 3}, [(0, 2)]),
        ([8, 8, 8, 8, 1, 1, 1, 1], {"samples": 1000, "clients": 100}, [(0, 4), (4, 8)]),
        ([], {"samples": 1000, "clients": 100}, []),
    ],
)
def test_cuts_by_hand(sizes, limits, pieces):
    found = cut(torch.tensor(sizes, dtype=torch.int64), **limits)
    assert [(piece.start, piece.stop) for piece in found] == pieces
