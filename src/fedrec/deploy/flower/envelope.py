"""Our bytes as the content of a Flower message, and back."""

from __future__ import annotations

from flwr.app import Array, ArrayRecord, RecordDict

KIND = "query"
"""Flower's type of our messages."""


def wrapped(data: bytes) -> RecordDict:
    """A content of one array of bytes; Flower cuts it into chunks, each with a checksum."""
    array = Array(dtype="uint8", shape=(len(data),), stype="fedrec", data=data)
    return RecordDict({"fedrec": ArrayRecord({"message": array})})


def unwrapped(content: RecordDict) -> bytes | None:
    """The bytes, or None where the content is none of ours."""
    record = content.get("fedrec")
    array = record.get("message") if isinstance(record, ArrayRecord) else None
    return array.data if array is not None and array.stype == "fedrec" else None
