"""Private state: what is written for a client is what is read for it, in memory and on disk, in any order of clients."""

import errno
import os

import numpy as np
import pytest
import torch

from fedrec.errors import FedrecError
from fedrec.federation.store import ClientStore, select, span
from fedrec.sampling.samples import Samples

ORDER = torch.tensor([3, 0, 4, 1, 2])


@pytest.fixture(params=["memory", "disk", "half"])
def store(request, tmp_path):
    """Filled with numbers that half precision holds."""
    folder = None if request.param == "memory" else tmp_path / "state"
    made = ClientStore(ORDER, folder, half=request.param == "half")
    everybody = torch.arange(5)
    made.fill(everybody, {"table": everybody.float()[:, None, None].expand(5, 4, 2) * 10, "count": everybody})
    return made


@pytest.mark.parametrize("who", [[0], [3, 0, 4], [0, 3], [2, 1], [4, 3, 2, 1, 0], []])
def test_clients_have_what_was_written_for_them(store, who):
    clients = torch.tensor(who, dtype=torch.int64)
    state = store.at(clients)
    assert len(state) == len(who)
    assert state["count"].tolist() == who
    assert state["table"].shape == (len(who), 4, 2)
    assert (state["table"] == 10 * clients[:, None, None]).all()
    assert "table" in state
    assert "other" not in state
    state["count"] = clients + 100
    everybody = store.at(torch.arange(5))["count"].tolist()
    assert everybody == [client + 100 if client in who else client for client in range(5)]


def test_state_can_be_filled_in_parts_and_keeps_its_types(store):
    kind = torch.float16 if store.half else torch.float32
    assert (store.tensors["table"].dtype, store.tensors["count"].dtype) == (kind, torch.int64)
    assert store.tensors["table"].shape == (5, 4, 2)
    assert store.nbytes == 5 * 4 * 2 * kind.itemsize + 5 * 8
    store.fill(torch.tensor([1, 4]), {"count": torch.tensor([-1, -4])})
    assert store.at(torch.arange(5))["count"].tolist() == [0, -1, 2, 3, -4]
    store.at(torch.tensor([2, 0])).write({"count": torch.tensor([7.0, 8.0])})
    assert store.tensors["count"].dtype == torch.int64
    assert store.at(torch.arange(5))["count"].tolist() == [8, -1, 7, 3, -4]


def test_the_usual_cohorts_are_read_without_a_copy(store):
    """In storage order, that is; others are copies."""
    state = store.at(torch.tensor([0, 4, 1]))
    assert state["count"].data_ptr() == store.tensors["count"][1:].data_ptr()
    assert store.half or state["table"].data_ptr() == store.tensors["table"][1:].data_ptr()
    base = store.tensors["table"].untyped_storage().data_ptr()
    assert store.at(torch.tensor([4, 0]))["table"].untyped_storage().data_ptr() != base


@pytest.mark.parametrize(
    ("rows", "found"),
    [([2, 3, 4], slice(2, 5)), ([0], slice(0, 1)), ([], slice(0, 0)), ([3, 2], None), ([1, 3], None), ([1, 1], None)],
)
def test_spans(rows, found):
    assert span(torch.tensor(rows, dtype=torch.int64)) == found
    values = torch.arange(12).view(6, 2)
    assert select(values, torch.tensor(rows, dtype=torch.int64)).tolist() == values[rows].tolist()


def samples(clients, rows, counts):
    n = len(clients)
    nothing = torch.zeros(n, 0)
    return Samples(
        clients, nothing.int(), nothing, nothing.int(), torch.zeros(n, dtype=torch.int64), rows, counts,
        torch.zeros(n, dtype=torch.int64), 0, 0,
    )  # fmt: skip


@pytest.mark.parametrize("who", [[0, 4], [4, 2]])
def test_touched_rows_of_a_personal_table_are_taken_and_put_back(store, who):
    clients = torch.tensor(who)
    touched = samples(clients, torch.tensor([[1, 3], [2, 0]], dtype=torch.int32), torch.tensor([2, 1]))
    store.at(clients)["table"] = torch.arange(16.0).view(2, 4, 2)
    block = store.at(clients).take("table", touched)
    assert block.tolist() == [[[2, 3], [6, 7]], [[12, 13], [8, 9]]]  # the padding repeats row 0
    store.at(clients).put("table", touched, block + 100)
    expected = torch.arange(16.0).view(2, 4, 2)
    for row in ((0, 1), (0, 3), (1, 2)):
        expected[row] += 100
    assert torch.equal(store.at(clients)["table"], expected)
    others = torch.tensor([client for client in range(5) if client not in who])
    assert (store.at(others)["table"] == 10 * others[:, None, None]).all()


def test_state_on_disk_takes_its_space_at_once(tmp_path):
    store = ClientStore(ORDER, tmp_path / "some" / "where")
    store.fill(torch.arange(5), {"table": torch.ones(5, 4, 2), "nothing": torch.ones(5, 0)})
    assert (tmp_path / "some" / "where" / "table.bin").stat().st_size == 5 * 4 * 2 * 4
    assert (tmp_path / "some" / "where" / "nothing.bin").stat().st_size == 0


def test_half_precision_is_of_item_tables_alone_and_rounds_by_a_2048th(tmp_path):
    store, values = ClientStore(ORDER, tmp_path, half=True), torch.randn(5, 40, 8)
    store.fill(torch.arange(5), {"table": values, "user": values[:, 0], "flags": values > 0})
    assert [store.tensors[name].dtype for name in ("table", "user", "flags")] == [
        torch.float16,
        torch.float32,
        torch.bool,
    ]
    assert (tmp_path / "table.bin").stat().st_size == 5 * 40 * 8 * 2
    for clients in (torch.tensor([3, 0]), torch.tensor([1, 0])):  # beside each other, and not
        found = store.at(clients)["table"]
        assert found.dtype == torch.float32
        assert not torch.equal(found, values[clients])
        assert torch.allclose(found, values[clients], rtol=2**-11, atol=2**-24)
    assert torch.equal(store.at(torch.tensor([2]))["user"], values[2:3, 0])


def test_what_is_written_is_in_the_file(tmp_path):
    store = ClientStore(ORDER, tmp_path)
    store.fill(torch.arange(5), {"count": torch.arange(5)})
    store.at(torch.tensor([4]))["count"] = torch.tensor([40])
    assert np.fromfile(tmp_path / "count.bin", np.int64).tolist() == [3, 0, 40, 1, 2]


def test_a_disk_without_room_is_one_sentence_and_leaves_no_file(tmp_path, monkeypatch):
    asked = []

    def full(file, start, size):
        asked.append((start, size))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    store = ClientStore(ORDER, tmp_path)
    with pytest.raises(
        FedrecError, match=r"table.bin cannot take 16 GB of client state \(No space left on device\); make"
    ):
        store.fill(torch.arange(5), {"table": torch.ones(1).expand(5, 400_000_000, 2)})
    assert asked == [(0, 16_000_000_000)]
    assert not list(tmp_path.iterdir())


def test_values_in_the_place_of_others_are_read_and_never_stored(store):
    state = store.at(torch.tensor([0, 3]))
    other = state.replaced({"count": torch.tensor([70, 73])})
    assert other["count"].tolist() == [70, 73]
    assert torch.equal(other["table"], state["table"])
    assert len(other) == 2
    assert "table" in other
    assert state["count"].tolist() == [0, 3]
    assert store.at(torch.arange(5))["count"].tolist() == list(range(5))


def test_a_store_of_some_clients_knows_them_by_their_numbers():
    store = ClientStore(torch.tensor([7, 2]), numbers=9)
    store.fill(torch.tensor([2, 7]), {"count": torch.tensor([20, 70])})
    assert store.tensors["count"].tolist() == [70, 20]
    assert store.at(torch.tensor([7]))["count"].tolist() == [70]
    assert store.clients == 2
