"""What several processes sent is brought together bit by bit: sums are added, uploads follow each other."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from federation.peers_at_hand import together
from fedrec.federation.exchange import added, gathered
from fedrec.federation.payload import Derived, Gram, RowUpdate, Table, Upload
from fedrec.federation.peers import Alone
from fedrec.federation.total import Total

CPU = torch.device("cpu")


def test_sums_are_added_and_who_has_none_of_a_name_adds_zeros():
    """Three processes; the last one has nothing, and a name is of one process alone."""

    def work(peers):
        mine = {"both": torch.tensor([[1.0, 2.0]]) * (peers.rank + 1), "counts": torch.tensor([3], dtype=torch.int64)}
        if peers.rank == 1:
            mine["one"] = torch.tensor(2.5, dtype=torch.float64)
        return added(peers, Total({} if peers.rank == 2 else mine), CPU)

    for found in together(3, work):
        assert list(found) == ["both", "counts", "one"], "in the same order everywhere"
        assert found["both"].tolist() == [[3.0, 6.0]]
        assert found["counts"].tolist() == [6]
        assert float(found["one"]) == 2.5
        assert [value.dtype for value in found.values()] == [torch.float32, torch.int64, torch.float64]
        assert [tuple(value.shape) for value in found.values()] == [(1, 2), (1,), ()]


def test_what_others_have_is_made_where_they_have_it_or_on_the_own_device():
    """``meta`` is another default device; sums of the CPU, such as counts of clients, stay on the CPU."""

    def work(peers):
        with torch.device("meta"):
            return added(peers, Total({"x": ONES} if peers.rank else {}), torch.device("meta"))

    assert all(found["x"].tolist() == [1.0, 1.0] for found in together(2, work))


ONES = torch.ones(2)


def test_sums_that_lie_in_columns_are_added_too():
    found = together(2, lambda peers: added(peers, Total({"x": torch.arange(6.0).view(2, 3).T}), CPU))
    assert all(torch.equal(one["x"], 2 * torch.arange(6.0).view(2, 3).T) for one in found)


def test_one_process_has_its_own_sums():
    total = Total({"x": torch.tensor([1.0, 2.0])})
    assert added(Alone(), total, CPU)["x"].tolist() == [1.0, 2.0]
    assert list(added(Alone(), Total(), CPU)) == []


@dataclass(frozen=True, eq=False)
class Rows(Table):
    """What a method derives from a part."""

    name: str = ""
    factor: float = 1.0


def upload(rank: int) -> Upload:
    """One of every kind, with numbers that say whose it is."""
    rows = RowUpdate(
        torch.tensor([[0, 3 + rank]], dtype=torch.int32), torch.tensor([2]), torch.full((1, 2, 2), 0.5 + rank), 9
    )
    return Upload(
        torch.tensor([rank]),
        torch.tensor([4.0 + rank]),
        {
            "plain": torch.tensor([[rank, 7]], dtype=torch.int16),
            "items": rows,
            "table": Table(torch.full((1, 2, 1), 1.5 + rank), torch.zeros(1, 2, 1)),
            "gram": Gram(torch.full((1, 2, 2), 2.5 + rank), None, torch.full((2, 1), 8.0), False),
            "own": Rows(torch.ones(1, 1, 1), None, "of a method", 0.25 + rank),
            "derived": Derived(torch.tensor([rank % 2 == 0])),
        },
    )


def same(found: Upload, rank: int, *, told: bool) -> None:
    wanted = upload(rank)
    assert found.clients.tolist() == [rank]
    assert found.weights.tolist() == [4.0 + rank]
    assert {name: type(part) for name, part in found.parts.items()} == {
        name: type(part) for name, part in wanted.parts.items()
    }
    plain, rows, table, gram, own, derived = found.parts.values()
    assert plain.dtype == torch.int16
    assert plain.tolist() == [[rank, 7]]
    assert rows.rows.dtype == torch.int32
    assert torch.equal(rows.dense(), wanted.parts["items"].dense())
    assert rows.n_items == 9
    assert torch.equal(table.value, wanted.parts["table"].value)
    assert (table.known is None) == told, "what the server sent it need not be told again"
    assert (gram.value.unique().tolist(), gram.test.tolist(), gram.whole) == ([2.5 + rank], [[8.0], [8.0]], False)
    assert (own.name, own.factor) == ("of a method", 0.25 + rank)
    assert derived.value.tolist() == [rank % 2 == 0]


def test_uploads_of_all_processes_follow_each_other_by_rank_in_every_process():
    """The second process has two, the third none."""
    numbers = {0: [0], 1: [1, 2], 2: []}
    found = together(3, lambda peers: gathered(peers, [upload(number) for number in numbers[peers.rank]], CPU))
    for rank, uploads in enumerate(found):
        assert len(uploads) == 3
        for number, one in enumerate(uploads):
            same(one, number, told=number not in numbers[rank])


def test_one_process_keeps_its_own_uploads():
    mine = [upload(0), upload(1)]
    assert gathered(Alone(), mine, CPU) == mine
    assert gathered(Alone(), [], CPU) == []


def test_tensors_of_any_type_and_shape_arrive_as_they_were():
    """An odd number of bytes first: what follows is read from where it begins."""
    values = {
        "bytes": torch.tensor([[1, 2, 3]], dtype=torch.uint8),
        "turned": torch.arange(6.0).view(2, 3).T[None],
        "empty": torch.zeros(1, 0, 4, dtype=torch.float64),
        "halves": torch.tensor([[0.5]], dtype=torch.float16),
        "doubles": torch.tensor([[1e-300]], dtype=torch.float64),
    }
    one = Upload(torch.tensor([0]), torch.ones(1), dict(values))
    _, found = together(2, lambda peers: gathered(peers, [one] if peers.rank == 0 else [], CPU))
    for name, value in found[0].parts.items():
        assert value.dtype == values[name].dtype
        assert torch.equal(value, values[name])


@pytest.mark.parametrize("rank", [0, 1])
def test_nothing_of_nobody_is_brought_together(rank):
    assert together(2, lambda peers: gathered(peers, [], CPU))[rank] == []


def test_alone_one_has_what_one_has():
    alone, values = Alone(), torch.tensor([1.0, 2.0])
    alone.add(values)
    assert values.tolist() == [1.0, 2.0]
    assert (alone.rank, alone.size) == (0, 1)
    assert [value.tolist() for value in (*alone.gather(values), *alone.collect(values))] == [[1.0, 2.0]] * 2
