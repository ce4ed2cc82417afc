import torch

from fedrec.federation.payload import RowUpdate, touched_rows


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
