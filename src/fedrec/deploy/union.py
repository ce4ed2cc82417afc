"""Items agreed without a published catalogue: the union of keyed hashes, whose key the sites share and the server has not.

Every site sends hashes of its items under the federation's key, in an order that says nothing. The server puts them together and
numbers them; a site finds its own items again by hashing them. The server learns how many items each site has and how
many two sites have in common, but of no item which it is. A site can find out whether an item it thinks of is in the union.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from fedrec.data.interactions import Ids
from fedrec.deploy.message import BadMessageError, Message
from fedrec.errors import ConfigError

KEY = "items.key"
"""File with the key in a site's folder."""
SIZE = 16
"""Bytes of a hash: two items among a billion share one with a chance of 10^-21."""


class ItemNames:
    """What a site calls items in front of the server."""

    def __init__(self, folder: Path) -> None:
        """Read the key in a site's folder."""
        try:
            self._key = bytes.fromhex((folder / KEY).read_text().strip())
        except (OSError, ValueError):
            self._key = b""
        if len(self._key) < SIZE:
            raise ConfigError(
                f"{folder / KEY} is no key for items; take that of another site of the federation, or publish a catalogue."
            )

    def __call__(self, item: str | int) -> str:
        """The keyed hash of an item, in hexadecimal."""
        return hmac.new(self._key, str(item).encode(), hashlib.sha256).digest()[:SIZE].hex()

    def back(self, items: Iterable[str | int]) -> Mapping[str, str | int]:
        """Items by their hash."""
        return {self(item): item for item in items}


def as_tensor(hashes: Iterable[str]) -> Tensor:
    """Sorted hashes [k, 16]: their order tells nothing of that of a site's items."""
    rows = b"".join(map(bytes.fromhex, sorted(set(hashes))))
    return torch.frombuffer(bytearray(rows), dtype=torch.uint8).view(-1, SIZE) if rows else torch.zeros(0, SIZE).byte()


def union(replies: Iterable[Message]) -> Ids:
    """All hashes of all sites, sorted."""
    found: set[str] = set()
    for reply in replies:
        rows = reply.tensor("hashes", torch.uint8, None, SIZE)
        found |= {bytes(row).hex() for row in rows.numpy()}
    if not found:
        raise BadMessageError("no site told of any items")
    return tuple(sorted(found))
