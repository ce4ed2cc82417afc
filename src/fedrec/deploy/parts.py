"""Downloads and uploads of many clients as named arrays, and back.

What is the same for all clients of a block, such as the item table of most methods, travels once. Of the rows a client
touched only the real ones travel.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedrec.deploy.message import BadMessageError, Message
from fedrec.federation.clients import Downlink
from fedrec.federation.payload import Derived, Part, Payload, RowUpdate, Table, Upload

Tensors = dict[str, Tensor]


def pack_download(source: Downlink, clients: Tensor) -> tuple[list[dict[str, str]], Tensors]:
    """What ``clients`` download, one block per kind: a description of every block, and the arrays."""
    kinds = source.kinds(clients)
    labels = torch.zeros(len(clients), dtype=torch.int64) if kinds is None else kinds.cpu().long()
    blocks: list[dict[str, str]] = []
    tensors: Tensors = {}
    for number, label in enumerate(torch.unique(labels).tolist()):
        who = clients[labels == label]
        tensors[f"down.{number}.clients"] = who
        forms = {}
        for name, part in source.payload(who).items():
            value = part.value if isinstance(part, Derived) else part
            if not isinstance(value, Tensor) or isinstance(part, Table):
                raise TypeError(f"a download of {type(part).__name__} cannot be sent to a site")
            common = value.stride(0) == 0 and len(who) > 1
            tensors[f"down.{number}.part.{name}"] = value[:1] if common else value
            forms[name] = ("common " if common else "") + ("derived" if isinstance(part, Derived) else "sent")
        blocks.append(forms)
    return blocks, tensors


@dataclass(frozen=True, eq=False)
class Download:
    """What a site got for its clients: a downlink for its half of the federation."""

    blocks: list[tuple[Tensor, Payload]]
    labels: Tensor  # [n] int64: the block of every client, -1 where it is in none
    places: Tensor  # [n] int64: its place there

    @staticmethod
    def unpack(message: Message, n_clients: int) -> Download:
        """The download in a message."""
        labels, places = (torch.full((n_clients,), -1, dtype=torch.int64) for _ in range(2))
        blocks: list[tuple[Tensor, Payload]] = []
        for number, forms in enumerate(message.fields.get("blocks", [])):
            who = message.tensor(f"down.{number}.clients", torch.int64, None)
            labels[who], places[who] = number, torch.arange(len(who))
            payload: Payload = {}
            for name, how in forms.items():
                value = message.tensors[f"down.{number}.part.{name}"]
                value = value[0].expand(len(who), *value.shape[1:]) if how.startswith("common ") else value
                payload[name] = Derived(value) if how.endswith("derived") else value
            blocks.append((who, payload))
        return Download(blocks, labels, places)

    def kinds(self, clients: Tensor) -> Tensor | None:
        """The block of every client."""
        return self.labels[clients.cpu()] if len(self.blocks) > 1 else None

    def payload(self, clients: Tensor) -> Payload:
        """What these clients, of one block, download."""
        if not len(clients):
            return {}
        _, payload = self.blocks[int(self.labels[int(clients[0])])]
        rows = self.places[clients.cpu()]
        return {name: _take(part, rows) for name, part in payload.items()}


def _take(part: Part, rows: Tensor) -> Part:
    if isinstance(part, Derived):
        return Derived(_rows(part.value, rows))
    assert isinstance(part, Tensor)
    return _rows(part, rows)


def _rows(value: Tensor, rows: Tensor) -> Tensor:
    if value.stride(0) == 0:
        return value[0].expand(len(rows), *value.shape[1:])
    if len(rows) == len(value) and bool((rows == torch.arange(len(rows))).all()):
        return value
    return value.index_select(0, rows)


def pack_uploads(uploads: list[Upload]) -> tuple[list[dict[str, str]], Tensors]:
    """Uploads of clients: a description of every cohort's, and the arrays."""
    cohorts: list[dict[str, str]] = []
    tensors: Tensors = {}
    for number, upload in enumerate(uploads):
        tensors[f"up.{number}.clients"], forms = upload.clients, {}
        for name, part in upload.parts.items():
            key = f"up.{number}.part.{name}"
            if type(part) is RowUpdate:
                rows, values = part.flat()
                arrays = {"rows": rows.to(part.rows.dtype), "counts": part.counts, "values": values}
                tensors |= {f"{key}.{field}": value for field, value in arrays.items()}
                forms[name] = "rows"
            elif type(part) is Table:
                tensors[key], forms[name] = part.value, "table"
            elif isinstance(part, Tensor):
                tensors[key], forms[name] = part, "tensor"
            else:
                raise TypeError(f"an upload of {type(part).__name__} cannot be sent by a site")
        cohorts.append(forms)
    return cohorts, tensors


def unpack_uploads(message: Message, counts: Tensor, n_items: int) -> list[Upload]:
    """The uploads in a message; ``counts`` [n] are all clients' numbers of training items, their weights."""
    found, cohorts = [], message.fields.get("cohorts")
    if not isinstance(cohorts, list):
        raise BadMessageError("its cohorts are missing")
    for number, forms in enumerate(cohorts):
        who = message.tensor(f"up.{number}.clients", torch.int64, None)
        if len(who) and not 0 <= int(who.min()) <= int(who.max()) < len(counts):
            raise BadMessageError("it names clients that do not exist")
        if not isinstance(forms, dict):
            raise BadMessageError("its cohorts cannot be read")
        parts = {
            name: _uploaded(message, f"up.{number}.part.{name}", how, len(who), n_items) for name, how in forms.items()
        }
        found.append(Upload(who, counts[who].float(), parts))
    return found


def _uploaded(message: Message, key: str, how: object, c: int, n_items: int) -> Part:
    if how == "rows":
        return _row_update(message, key, c, n_items)
    value = message.tensors.get(key)
    if value is None or value.dim() < 1 or len(value) != c:
        raise BadMessageError(f"{key} is missing or not of {c} clients")
    if how == "table":
        return Table(value)
    if how == "tensor":
        return value
    raise BadMessageError(f"{key} is of an unknown kind")


def _row_update(message: Message, key: str, c: int, n_items: int) -> RowUpdate:
    counts = message.tensor(f"{key}.counts", torch.int64, c)
    rows = message.tensor(f"{key}.rows", torch.int32, None)
    values = message.tensors.get(f"{key}.values")
    if values is None or values.dim() != 2 or len(values) != len(rows) or bool((counts < 0).any()):
        raise BadMessageError(f"{key} has rows and values that do not fit each other")
    if int(counts.sum()) != len(rows) or int(counts.max() if c else 0) > n_items:
        raise BadMessageError(f"{key} has rows and values that do not fit each other")
    if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < n_items:
        raise BadMessageError("it names items that are not in the catalogue")
    width = int(counts.max()) if c else 0
    valid = torch.arange(width) < counts[:, None]
    padded_rows, padded = torch.zeros(c, width, dtype=torch.int32), values.new_zeros(c, width, values.shape[1])
    padded_rows[valid], padded[valid] = rows, values
    return RowUpdate(padded_rows, counts, padded, n_items)
