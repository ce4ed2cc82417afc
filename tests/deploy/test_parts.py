"""Downloads and uploads cross the wire as they are, and what does not fit is refused in a sentence."""

from __future__ import annotations

import pytest
import torch

from fedrec.deploy.message import BadMessageError, Message
from fedrec.deploy.parts import Download, pack_download, pack_uploads, unpack_uploads
from fedrec.federation.payload import Derived, Gram, RowUpdate, Table, Upload

COUNTS = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6])
ITEMS = 6


class Source:
    """Everybody downloads a common table, a row of its own and something it could work out; even and odd clients differ."""

    def __init__(self, kinds: bool) -> None:
        self.labelled = kinds

    def kinds(self, clients: torch.Tensor) -> torch.Tensor | None:
        return clients % 2 if self.labelled else None

    def payload(self, clients: torch.Tensor) -> dict[str, object]:
        width = 2 + int(clients[0]) % 2 if self.labelled else 2
        table = torch.arange(4.0 * width).view(4, width)
        return {
            "items": table.expand(len(clients), 4, width),
            "own": clients[:, None].double() * 10,
            "common": Derived(torch.tensor([7.0]).expand(len(clients), 1)),
            "derived": Derived(clients.clone()),
        }


def sent(fields: dict[str, object], tensors: dict[str, torch.Tensor]) -> Message:
    """What arrives of a message."""
    return Message.decode(Message("x", fields, tensors).encode())


@pytest.mark.parametrize("kinds", [False, True])
@pytest.mark.parametrize("who", [[5, 2, 7, 0], [4]])
def test_clients_download_what_the_server_has_for_them(who: list[int], kinds: bool) -> None:
    source, clients = Source(kinds), torch.tensor(who)
    blocks, tensors = pack_download(source, clients)  # type: ignore[arg-type]
    assert len(blocks) == len({client % 2 for client in who} if kinds else {0})
    found = Download.unpack(sent({"blocks": blocks}, tensors), len(COUNTS))
    for part in (clients[:1], clients.flip(0)[:1], *([] if kinds else [clients, clients.flip(0), clients[1:]])):
        if not len(part):
            continue
        wanted, got = source.payload(part), found.payload(part)
        assert set(got) == set(wanted)
        for name, value in wanted.items():
            assert type(got[name]) is type(value)
            plain, other = (x.value if isinstance(x, Derived) else x for x in (got[name], value))
            assert plain.dtype == other.dtype
            assert torch.equal(plain, other), name
    labels = found.kinds(clients)
    assert (labels is None) == (len(blocks) == 1)
    if labels is not None:
        assert (labels == labels[0]).tolist() == (clients % 2 == clients[0] % 2).tolist()
    assert found.payload(clients[:0]) == {}


def test_what_all_clients_share_travels_once() -> None:
    _, tensors = pack_download(Source(False), torch.arange(8))  # type: ignore[arg-type]
    assert tensors["down.0.part.items"].shape == (1, 4, 2)
    assert tensors["down.0.part.common"].shape == (1, 1)
    assert tensors["down.0.part.own"].shape == (8, 1)


def test_a_table_is_no_download() -> None:
    source = Source(False)
    source.payload = lambda clients: {"items": Table(torch.zeros(len(clients), 2, 2))}  # type: ignore[method-assign,assignment,return-value]
    with pytest.raises(TypeError, match="a download of Table cannot be sent to a site"):
        pack_download(source, torch.arange(2))  # type: ignore[arg-type]


def uploads() -> list[Upload]:
    rows = RowUpdate(
        torch.tensor([[1, 4], [3, 0]], dtype=torch.int32), torch.tensor([2, 1]),
        torch.tensor([[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [0.0, 0.0]]]), ITEMS,
    )  # fmt: skip
    first = {"items": rows, "net": torch.tensor([[1.5], [2.5]]), "table": Table(torch.ones(2, 3, 1))}
    return [
        Upload(torch.tensor([6, 1]), torch.zeros(2), first),
        Upload(torch.tensor([5]), torch.zeros(1), {"net": torch.tensor([[9.0]], dtype=torch.float64)}),
    ]


def test_uploads_arrive_with_the_weights_the_server_knows() -> None:
    cohorts, tensors = pack_uploads(uploads())
    assert tensors["up.0.part.items.values"].tolist() == [[1, 2], [3, 4], [5, 6]], "real rows alone travel"
    first, second = unpack_uploads(sent({"cohorts": cohorts}, tensors), COUNTS, ITEMS)
    assert first.clients.tolist() == [6, 1]
    assert first.weights.tolist() == [2.0, 1.0]
    assert second.weights.tolist() == [9.0]
    sent_rows, wanted = first.parts["items"], uploads()[0].parts["items"]
    assert isinstance(sent_rows, RowUpdate)
    assert isinstance(wanted, RowUpdate)
    assert torch.equal(sent_rows.dense(), wanted.dense())
    assert sent_rows.counts.tolist() == [2, 1]
    assert isinstance(first.parts["table"], Table)
    assert first.parts["table"].value.tolist() == [[[1.0]] * 3] * 2
    assert second.parts["net"].dtype == torch.float64  # type: ignore[union-attr]


def test_other_parts_cannot_be_sent() -> None:
    gram = Upload(torch.tensor([0]), torch.ones(1), {"g": Gram(torch.zeros(1, 2, 2))})
    with pytest.raises(TypeError, match="an upload of Gram cannot be sent by a site"):
        pack_uploads([gram])


def test_clients_who_changed_no_row_upload_none() -> None:
    nothing = RowUpdate(
        torch.zeros(2, 0, dtype=torch.int32), torch.zeros(2, dtype=torch.int64), torch.zeros(2, 0, 3), ITEMS
    )
    cohorts, tensors = pack_uploads([Upload(torch.tensor([0, 1]), torch.ones(2), {"items": nothing})])
    (found,) = unpack_uploads(sent({"cohorts": cohorts}, tensors), COUNTS, ITEMS)
    assert found.parts["items"].dense().shape == (2, ITEMS, 3)  # type: ignore[union-attr]


def spoiled(change: dict[str, torch.Tensor | None]) -> dict[str, torch.Tensor]:
    _, tensors = pack_uploads(uploads())
    return {name: value for name, value in (tensors | change).items() if value is not None}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"up.0.clients": None}, "its up.0.clients is missing"),
        ({"up.0.clients": torch.tensor([6, 8])}, "it names clients that do not exist"),
        ({"up.0.clients": torch.tensor([-1, 1])}, "it names clients that do not exist"),
        ({"up.0.clients": torch.tensor([6.0, 1.0])}, r"its up.0.clients is float32 \[2\]"),
        ({"up.0.part.net": torch.zeros(3, 1)}, "up.0.part.net is missing or not of 2 clients"),
        ({"up.0.part.net": None}, "up.0.part.net is missing or not of 2 clients"),
        ({"up.0.part.table": torch.tensor(1.0)}, "up.0.part.table is missing or not of 2 clients"),
        ({"up.0.part.items.counts": torch.tensor([2, 2])}, "rows and values that do not fit each other"),
        ({"up.0.part.items.counts": torch.tensor([4, -1])}, "rows and values that do not fit each other"),
        ({"up.0.part.items.counts": torch.tensor([3])}, r"its up.0.part.items.counts is int64 \[1\]"),
        ({"up.0.part.items.values": torch.zeros(2, 2)}, "rows and values that do not fit each other"),
        ({"up.0.part.items.values": torch.zeros(3)}, "rows and values that do not fit each other"),
        ({"up.0.part.items.values": None}, "rows and values that do not fit each other"),
        ({"up.0.part.items.rows": torch.tensor([1, 4, 6], dtype=torch.int32)}, "items that are not in the catalogue"),
        ({"up.0.part.items.rows": torch.tensor([1, -4, 3], dtype=torch.int32)}, "items that are not in the catalogue"),
        ({"up.0.part.items.rows": torch.tensor([1, 4, 3])}, r"its up.0.part.items.rows is int64 \[3\]"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change: dict[str, torch.Tensor | None], sentence: str) -> None:
    cohorts, _ = pack_uploads(uploads())
    with pytest.raises(BadMessageError, match=sentence):
        unpack_uploads(sent({"cohorts": cohorts}, spoiled(change)), COUNTS, ITEMS)


@pytest.mark.parametrize(
    ("cohorts", "sentence"),
    [
        (None, "its cohorts are missing"),
        ("rows", "its cohorts are missing"),
        ([["items"]], "its cohorts cannot be read"),
        ([{"net": "secret"}], "up.0.part.net is of an unknown kind"),
    ],
)
def test_descriptions_that_cannot_be_read_are_refused(cohorts: object, sentence: str) -> None:
    with pytest.raises(BadMessageError, match=sentence):
        unpack_uploads(sent({"cohorts": cohorts}, spoiled({})), COUNTS, ITEMS)


def test_more_rows_than_there_are_items_are_refused() -> None:
    rows = torch.arange(4, dtype=torch.int32).repeat(2)
    tensors = {
        "up.0.clients": torch.tensor([0]), "up.0.part.i.counts": torch.tensor([8]), "up.0.part.i.rows": rows,
        "up.0.part.i.values": torch.zeros(8, 1),
    }  # fmt: skip
    with pytest.raises(BadMessageError, match="do not fit each other"):
        unpack_uploads(sent({"cohorts": [{"i": "rows"}]}, tensors), COUNTS, 4)


@pytest.mark.parametrize("value", [None, "3", 3.0, True, -1])
def test_plain_values_are_of_their_type_or_refused(value: object) -> None:
    message = sent(
        {"n": value, "good": 3, "word": "w"}, {"a.x": torch.ones(1), "a.y": torch.zeros(1), "b.x": torch.ones(1)}
    )
    assert (message.integer("good"), message.text("word")) == (3, "w")
    assert set(message.group("a")) == {"x", "y"}
    with pytest.raises(BadMessageError, match="its n is no whole number"):
        message.integer("n")
    if not isinstance(value, str):
        with pytest.raises(BadMessageError, match="its n is no text"):
            message.text("n")


@pytest.mark.parametrize("data", [b"", b"short", b"\xff" * 20, (10).to_bytes(8, "little") + b"{" * 10])
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(BadMessageError, match="it is cut short or no message"):
        Message.decode(data)


def test_a_message_of_another_version_or_shape_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadMessageError, match="it is no message"):
        Message.decode(Message(3, {}).encode())  # type: ignore[arg-type]
    with pytest.raises(BadMessageError, match="it is no message"):
        Message.decode(Message("x", []).encode())  # type: ignore[arg-type]
    monkeypatch.setattr("fedrec.deploy.message.FORMAT", 2)
    data = Message("x").encode()
    monkeypatch.undo()
    with pytest.raises(BadMessageError, match="it has format 2, not 1; run the same version of fedrec everywhere"):
        Message.decode(data)
