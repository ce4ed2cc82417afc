"""What clients of several processes sent, brought together in each of them: sums are added, uploads follow each other.

Nothing is pickled: names, types and shapes travel as JSON, numbers as the bytes they are.
"""

from __future__ import annotations

import json
from dataclasses import fields
from math import prod
from typing import Any

import torch
from torch import Tensor

from fedrec.federation.payload import Derived, Part, RowUpdate, Table, Upload
from fedrec.federation.peers import Peers
from fedrec.federation.total import Total


def added(peers: Peers, total: Total, device: torch.device) -> Total:
    """The sums over the clients of all processes; who has none of a name adds zeros."""
    described = {name: _describe(value) for name, value in total.items()}
    known: dict[str, dict[str, Any]] = {}
    for other in _gather_json(peers, described):
        known |= other
    sums = {}
    for name in sorted(known):
        form = known[name]
        if name in total:
            value = total[name].contiguous()
        else:
            place = device if form["place"] != "cpu" else torch.device("cpu")
            value = torch.zeros(form["shape"], dtype=_dtype(form), device=place)
        peers.add(value)
        sums[name] = value
    return Total(sums)


def gathered(peers: Peers, uploads: list[Upload], device: torch.device) -> list[Upload]:
    """The uploads of the clients of all processes, by rank."""
    forms, tensors = _pack(uploads)
    described = _gather_json(peers, forms)
    own = [tensor.detach().cpu().contiguous().view(-1).view(torch.uint8) for tensor in tensors]
    everything = peers.gather(torch.cat([torch.zeros(0, dtype=torch.uint8), *own]))
    found: list[Upload] = []
    for rank, (theirs, data) in enumerate(zip(described, everything, strict=True)):
        found += uploads if rank == peers.rank else _unpack(theirs, data, device)
    return found


def _kinds(*kinds: type) -> dict[str, type]:
    """Types of parts by name, with those that methods derive from them."""
    found = {kind.__name__: kind for kind in kinds}
    for kind in kinds:
        found |= _kinds(*kind.__subclasses__())
    return found


def _describe(value: Tensor) -> dict[str, Any]:
    return {"dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape), "place": value.device.type}


def _dtype(form: dict[str, Any]) -> torch.dtype:
    found = getattr(torch, form["dtype"])
    assert isinstance(found, torch.dtype)
    return found


def _gather_json(peers: Peers, value: Any) -> list[Any]:
    text = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
    return [json.loads(found.numpy().tobytes()) for found in peers.gather(text)]


def _pack(uploads: list[Upload]) -> tuple[list[dict[str, Any]], list[Tensor]]:
    """A description of every cohort's upload, and all its tensors in that order."""
    tensors: list[Tensor] = []

    def place(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return {"plain": value}
        tensors.append(value)
        return _describe(value)

    forms = []
    for upload in uploads:
        parts = {}
        for name, part in upload.parts.items():
            if isinstance(part, Tensor):
                parts[name] = {"kind": "Tensor", "value": place(part)}
            else:  # what the server sent it need not be told again
                told = {
                    field.name: None if field.name == "known" else getattr(part, field.name) for field in fields(part)
                }
                parts[name] = {
                    "kind": type(part).__name__,
                    "fields": {key: place(value) for key, value in told.items()},
                }
        forms.append({"parts": parts, "clients": place(upload.clients), "weights": place(upload.weights)})
    return forms, tensors


def _unpack(forms: list[dict[str, Any]], data: Tensor, device: torch.device) -> list[Upload]:
    position, kinds = 0, _kinds(RowUpdate, Table, Derived)

    def take(form: dict[str, Any]) -> Any:
        nonlocal position
        if "plain" in form:
            return form["plain"]
        dtype = _dtype(form)
        size = prod(form["shape"]) * dtype.itemsize
        raw = data[position : position + size].clone()  # a place of its own, and so an aligned one
        position += size
        value = raw.view(dtype).view(form["shape"])
        return value.to(device) if form["place"] != "cpu" else value

    found = []
    for form in forms:
        parts: dict[str, Part] = {}
        for name, told in form["parts"].items():
            if told["kind"] == "Tensor":
                parts[name] = take(told["value"])
            else:
                parts[name] = kinds[told["kind"]](**{key: take(value) for key, value in told["fields"].items()})
        found.append(Upload(take(form["clients"]), take(form["weights"]), parts))
    return found
