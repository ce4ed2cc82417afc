import pytest
import torch

from fedrec.errors import ConfigError
from fedrec.federation.payload import (
    Derived,
    Gram,
    RowUpdate,
    Table,
    change,
    client_bytes,
    row_update,
    table,
    tensor,
    touched_rows,
)


def test_changes_are_added_to_tables_in_place_without_the_padding():
    tables = torch.arange(12.0).view(2, 3, 2)
    values = torch.tensor([[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [9.0, 9.0]]])
    rows = torch.tensor([[0, 2], [1, 1]], dtype=torch.int32)
    moved = RowUpdate(rows, torch.tensor([2, 1]), values, 3).move(tables)
    assert moved is tables
    assert moved.tolist() == [[[1, 3], [2, 3], [7, 9]], [[6, 7], [13, 15], [10, 11]]]


def test_rows_are_read_alike_from_touched_and_from_dense_changes():
    rows = torch.tensor([[0, 2], [1, 0]], dtype=torch.int32)
    values = torch.tensor([[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [0.0, 0.0]]])
    update = RowUpdate(rows, torch.tensor([2, 1]), values, 3)
    owners, items, changes = touched_rows(update)
    assert (owners.tolist(), items.tolist()) == ([0, 0, 1], [0, 2, 1])
    assert changes.tolist() == [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    owners, items, changes = touched_rows(update.dense())
    assert owners.tolist() == [0, 0, 0, 1, 1, 1]
    assert items.tolist() == [0, 1, 2, 0, 1, 2]
    rebuilt = torch.zeros(2, 3, 2)
    rebuilt[owners, items] = changes
    assert torch.equal(rebuilt, update.dense())


def test_changes_are_what_the_server_does_not_know():
    known = torch.full((2, 3, 2), 5.0)
    assert change(Table(known + 1, known)).tolist() == torch.ones(2, 3, 2).tolist()
    assert change(Table(known, known + 1)).tolist() == (-torch.ones(2, 3, 2)).tolist()
    plain = torch.ones(2, 4)
    assert change(plain) is plain
    with pytest.raises(ConfigError, match="tables the server knows nothing of"):
        change(Table(known))


def test_dense_changes_have_zeros_where_nothing_was_touched_and_leave_padding_out():
    update = RowUpdate(torch.tensor([[2, 0]], dtype=torch.int32), torch.tensor([1]), torch.ones(1, 2, 2), 4)
    assert update.dense().tolist() == [[[0, 0], [0, 0], [1, 1], [0, 0]]]
    assert update.valid.tolist() == [[True, False]]
    rows, values = update.flat()
    assert (rows.tolist(), rows.dtype, values.tolist()) == ([2], torch.int64, [[1, 1]])


def test_parts_are_read_by_what_they_are():
    rows = RowUpdate(torch.zeros(1, 1, dtype=torch.int32), torch.tensor([1]), torch.ones(1, 1, 2), 4)
    value = torch.ones(1, 3)
    payload = {"rows": rows, "plain": value, "known": Derived(value * 2), "table": Table(value)}
    assert row_update(payload, "rows") is rows
    assert tensor(payload, "plain") is value
    assert tensor(payload, "known").tolist() == [[2, 2, 2]]
    assert table(payload, "table").value is value
    with pytest.raises(TypeError, match=r"^'table' is a Table here, not a Tensor\.$"):
        tensor(payload, "table")
    with pytest.raises(TypeError, match=r"^'plain' is a Tensor here, not a Table\.$"):
        table(payload, "plain")
    with pytest.raises(TypeError, match=r"^'plain' is a Tensor here, not a RowUpdate; after .* reads both\.$"):
        row_update(payload, "plain")
    with pytest.raises(TypeError, match=r"^Table holds no changes of rows"):
        touched_rows(payload["table"])


def test_bytes_of_every_kind_of_part():
    """Numbers count with their size, row numbers too; what a client works out by itself costs nothing."""
    assert Table(torch.zeros(3, 5, 2)).numbers == 10
    assert Gram(torch.zeros(3, 5, 2)).numbers == 25
    assert Gram(torch.zeros(3, 5, 2), whole=False).numbers == 10
    rows = RowUpdate(torch.zeros(3, 4, dtype=torch.int32), torch.tensor([4, 0, 1]), torch.zeros(3, 4, 2).double(), 9)
    assert rows.nbytes.tolist() == [4 * (2 * 8 + 4), 0, 2 * 8 + 4]
    for part, size in (
        (torch.zeros(3, 5, 2), 40),
        (torch.zeros(3, 5, dtype=torch.float64), 40),
        (torch.zeros(3), 4),
        (Table(torch.zeros(3, 5, 2).double()), 80),
        (Gram(torch.zeros(3, 5, 2)), 100),
        (Derived(torch.zeros(3, 5)), 0),
    ):
        assert client_bytes({"x": part, "y": part}, 3).tolist() == [2 * size] * 3
    assert client_bytes({"rows": rows, "x": torch.zeros(3, 2)}, 3).tolist() == [88, 8, 28]
    assert client_bytes({}, 2).tolist() == [0, 0]
