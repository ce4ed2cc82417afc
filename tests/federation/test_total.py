"""Sums over clients: in whatever parts they are added up, they are the same."""

import pytest
import torch

from fedrec.federation.payload import RowUpdate, Upload
from fedrec.federation.total import Total
from fedrec.parts.aggregation import add_mean, add_rows, step_mean, step_rows

ITEMS, DIM = 7, 3
RULES = ["sum", "uniform", "size", "touched", "change"]


def uploads() -> list[Upload]:
    """Four cohorts of one to four clients; numbers are small integers, so that every order of adding gives the same bits."""
    draw, found = torch.Generator().manual_seed(0), []
    for clients in (1, 2, 3, 4):
        rows = torch.stack([torch.randperm(ITEMS, generator=draw)[:4] for _ in range(clients)]).int()
        counts = torch.randint(1, 5, (clients,), generator=draw)
        values = torch.randint(-8, 9, (clients, 4, DIM), generator=draw).float()
        values[torch.arange(4) >= counts[:, None]] = 0
        network = torch.randint(-8, 9, (clients, 5), generator=draw).float()
        parts = {"items": RowUpdate(rows, counts, values, ITEMS), "network": network}
        found.append(Upload(torch.arange(clients), torch.arange(1.0, clients + 1), parts))
    return found


def added(parts: list[Upload], rule: str) -> Total:
    total = Total()
    for upload in parts:
        add_rows(total, upload, "items", rule)
        add_mean(total, upload, "network")
    return total


def equal(left: Total, right: Total) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("rule", RULES)
def test_merging_is_associative_and_equal_to_one_pass(rule: str) -> None:
    parts = uploads()
    first, second, third = added(parts[:1], rule), added(parts[1:3], rule), added(parts[3:], rule)
    whole = added(parts, rule)
    assert {"items", "items.weight", "network", "network.weight"} == set(whole)
    assert equal(first.merge(second).merge(third), whole)
    assert equal(first.merge(second.merge(third)), whole)
    assert equal(third.merge(first).merge(second), whole)
    table, network = torch.ones(ITEMS, DIM), torch.ones(5)
    merged = first.merge(second).merge(third)
    assert torch.equal(step_rows(table, merged, "items", rule), step_rows(table, whole, "items", rule))
    assert torch.equal(step_mean(network, merged, "network"), step_mean(network, whole, "network"))
    assert not torch.equal(step_rows(table, merged, "items", rule), table)


def test_nothing_is_neutral() -> None:
    total = added(uploads(), "touched")
    assert equal(Total().merge(total), total)
    assert equal(total.merge(Total()), total)
    assert not Total().merge(Total())


def test_names_of_one_side_are_kept() -> None:
    merged = Total({"a": torch.ones(2)}).merge(Total({"b": torch.ones(3)}))
    assert list(merged) == ["a", "b"]


def test_merging_shares_no_memory() -> None:
    left, right = (
        Total({"both": torch.ones(2), "left": torch.ones(2)}),
        Total({"both": torch.ones(2), "right": torch.ones(2)}),
    )
    merged = left.merge(right)
    for name in list(merged):
        merged.add(name, torch.full((2,), 10.0))
    for side in (left, right):
        assert all(torch.equal(value, torch.ones(2)) for value in side.values())
        for name in list(side):
            side.add(name, torch.full((2,), 100.0))
    assert merged["both"].tolist() == [12, 12]
    assert merged["left"].tolist() == merged["right"].tolist() == [11, 11]


def test_rows_may_repeat() -> None:
    total = Total()
    total.add_rows("items", 3, torch.tensor([2, 0, 2]), torch.tensor([[1.0], [2.0], [4.0]]))
    total.add_rows("items", 3, torch.tensor([0]), torch.tensor([[8.0]]))
    assert total["items"].tolist() == [[10], [0], [5]]


def test_plain_numbers_add_up() -> None:
    total = Total()
    total.add("clients", 3)
    total.add("clients", 4)
    assert int(total["clients"]) == 7


def test_a_table_is_added_to_in_place_and_kept() -> None:
    total, like = Total(), torch.zeros(2)
    table = total.table("pairs", 3, 2, like=like, dtype=torch.int64)
    assert table.tolist() == [[0, 0]] * 3
    assert table.dtype == torch.int64
    table[1] += 5
    assert total.table("pairs", 3, 2, like=like, dtype=torch.int64) is table
    assert total["pairs"].tolist() == [[0, 0], [5, 5], [0, 0]]
