"""What crosses the wire between server and sites: a kind, plain values and named arrays, as one block of safetensors.

Nothing else is ever read: no pickle, no code. What a transport carries is bytes, so a message is the same over Flower,
within one process, or anything else.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from fedrec.errors import FedrecError

FORMAT = 1
"""Version of the messages. Raise it when older ones can no longer be understood."""
LARGEST_HEADER = 1 << 26
"""Bytes of names and plain values in a message."""


class BadMessageError(FedrecError):
    """Bytes that are no message, or one that does not hold what it must."""


@dataclass(frozen=True, eq=False)
class Message:
    """One message."""

    kind: str
    fields: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The bytes to send."""
        plain = json.dumps({"format": FORMAT, "kind": self.kind, "fields": self.fields}, allow_nan=False)
        arrays: dict[str, Tensor] = {}
        seen: set[int] = set()
        for name, value in self.tensors.items():
            array = value.detach().cpu().contiguous()
            address = array.untyped_storage().data_ptr()
            arrays[name] = array.clone() if address in seen else array  # the format wants every array on its own
            seen.add(address)
        return bytes(save(arrays, metadata={"fedrec": plain}))

    @staticmethod
    def decode(data: bytes) -> Message:
        """The message of these bytes, or one sentence about what is wrong with them."""
        if len(data) < 8 or int.from_bytes(data[:8], "little") > min(len(data) - 8, LARGEST_HEADER):
            raise BadMessageError("it is cut short or no message")
        size = int.from_bytes(data[:8], "little")
        try:
            plain = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["fedrec"])
            found, kind, fields = plain["format"], plain["kind"], plain["fields"]
            tensors: dict[str, Tensor] = load(data)
        except (ValueError, KeyError, TypeError, RecursionError, SafetensorError):
            raise BadMessageError("it is cut short or no message") from None
        if found != FORMAT:
            raise BadMessageError(f"it has format {found}, not {FORMAT}; run the same version of fedrec everywhere")
        if not isinstance(kind, str) or not isinstance(fields, dict):
            raise BadMessageError("it is no message")
        return Message(kind, fields, tensors)

    def integer(self, name: str) -> int:
        """A whole number, 0 or more."""
        value = self.fields.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise BadMessageError(f"its {name} is no whole number")
        return value

    def text(self, name: str) -> str:
        """A text."""
        value = self.fields.get(name)
        if not isinstance(value, str):
            raise BadMessageError(f"its {name} is no text")
        return value

    def tensor(self, name: str, dtype: torch.dtype, *shape: int | None) -> Tensor:
        """An array of this type and shape; None stands for any size."""
        value = self.tensors.get(name)
        if value is None:
            raise BadMessageError(f"its {name} is missing")
        fits = value.dim() == len(shape) and all(n is None or n == m for n, m in zip(shape, value.shape, strict=True))
        if value.dtype != dtype or not fits:
            raise BadMessageError(f"its {name} is {form(value)}")
        return value

    def group(self, prefix: str) -> dict[str, Tensor]:
        """The arrays whose names begin so, by the rest of their names."""
        start = f"{prefix}."
        return {name.removeprefix(start): value for name, value in self.tensors.items() if name.startswith(start)}


def form(value: Tensor) -> str:
    """Type and shape in words."""
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"


def bytes_tensor(data: bytes) -> Tensor:
    """Bytes as an array."""
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.zeros(0, dtype=torch.uint8)


def text_tensor(value: Any) -> Tensor:
    """Plain values of any length as an array."""
    return bytes_tensor(json.dumps(value).encode())


def plain(value: Tensor) -> Any:
    """Plain values from an array."""
    try:
        return json.loads(bytes(value.numpy()).decode())
    except (ValueError, RecursionError):
        raise BadMessageError("a list in it cannot be read") from None
