"""The messages of a round, as bytes: a fixed header, then records of a fixed size, or one block of masked numbers.

    "FRSA" | format 1 byte | kind 1 byte | sender 2 bytes | length of the body 8 bytes | digest of the terms 16 bytes |
    checksum 16 bytes | body

Nothing in a message says how long it may be: the terms do, and what is longer is refused before it is read. Kinds in the
order of a round, with who sends them; signatures are left out, and those two kinds, where the terms are without:

    KEYS      party    its two public keys and the commitment to its own mask, signed
    ROSTER    server   those of everybody who is there
    SHARES    party    a sealed envelope for every other party: a share of each of its two secrets
    ENVELOPES server   those that are for this party
    MASKED    party    its masked numbers
    ALIVE     server   who sent some
    CONFIRM   party    its signature of this list
    CONFIRMED server   everybody's
    OPENED    party    of every party one share: of its own mask if it is alive, of its key for masks if it is not
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

from fedrec.secure.errors import MessageError
from fedrec.secure.keys import KEY, SEAL, SEED, SIGNATURE
from fedrec.secure.ring import size
from fedrec.secure.terms import Terms

MAGIC = b"FRSA"
FORMAT = 1
HEADER = struct.Struct("<4sBBHQ16s")
CHECKSUM = 16
SERVER = 0xFFFF
"""The server's number as a sender."""


class Kind(Enum):
    """What a message is; its number on the wire, and the bytes of one record beside its party's number."""

    KEYS = 1, 3 * KEY
    ROSTER = 2, 3 * KEY
    SHARES = 3, 2 * SEED + SEAL
    ENVELOPES = 4, 2 * SEED + SEAL
    MASKED = 5, 0
    ALIVE = 6, 0
    OPENED = 7, SEED
    CONFIRM = 8, SIGNATURE
    CONFIRMED = 9, SIGNATURE

    def width(self, terms: Terms) -> int:
        """Bytes of a record."""
        keys = self in (Kind.KEYS, Kind.ROSTER)
        return self.value[1] + (SIGNATURE if keys and terms.signed else 0)

    @property
    def word(self) -> str:
        """What it is called in a sentence."""
        return WORDS.get(self, self.name.lower())


WORDS = {
    Kind.MASKED: "masked numbers",
    Kind.ALIVE: "list of who is alive",
    Kind.OPENED: "opened shares",
    Kind.CONFIRM: "signatures",
    Kind.CONFIRMED: "signatures of others",
}
BY_NUMBER = {kind.value[0]: kind for kind in Kind}


@dataclass(frozen=True, eq=False)
class Message:
    """One message: records by party, or the masked numbers."""

    kind: Kind
    sender: int
    records: dict[int, bytes] = field(default_factory=dict)
    block: bytes | memoryview = b""

    def encode(self, terms: Terms) -> bytes:
        """The bytes to send."""
        body = self.block or b"".join(struct.pack("<H", party) + self.records[party] for party in sorted(self.records))
        header = HEADER.pack(MAGIC, FORMAT, self.kind.value[0], self.sender, len(body), terms.digest[:16])
        return b"".join((header, _checksum(header, body), body))

    @staticmethod
    def decode(data: bytes, terms: Terms, expected: Kind) -> Message:
        """The message in these bytes, or one sentence about what is wrong with them."""
        start = HEADER.size + CHECKSUM
        if len(data) > largest(terms, expected):
            raise MessageError(f"{len(data):,} bytes where {expected.word} have {largest(terms, expected):,} at most")
        if len(data) < start or data[:4] != MAGIC:
            raise MessageError("it is cut short, or no message of a secure sum")
        _, version, number, sender, length, digest = HEADER.unpack_from(data)
        body = memoryview(data)[start:]
        if version != FORMAT:
            raise MessageError(f"it has format {version}, not {FORMAT}; run the same version of fedrec everywhere")
        if length != len(body):
            raise MessageError(f"it is cut short or too long: {len(body):,} bytes instead of {length:,}")
        if data[HEADER.size : start] != _checksum(data[: HEADER.size], body):
            raise MessageError("it was damaged on its way")
        if digest != terms.digest[:16]:
            raise MessageError("it is of another round, or of other terms")
        kind = BY_NUMBER.get(number)
        if kind is not expected:
            found = f"kind {number}" if kind is None else kind.word
            raise MessageError(f"it brings {found}, and {expected.word} are what is due")
        if kind is Kind.MASKED:
            if length != size(terms):
                raise MessageError(f"{length:,} bytes of masked numbers instead of {size(terms):,}")
            return Message(kind, sender, block=body)
        return Message(kind, sender, _records(kind, body, terms))


def _records(kind: Kind, body: memoryview, terms: Terms) -> dict[int, bytes]:
    step = 2 + kind.width(terms)
    if len(body) % step:
        raise MessageError(f"its {kind.word} are cut short")
    numbers = [struct.unpack_from("<H", body, first)[0] for first in range(0, len(body), step)]
    if any(later <= earlier for earlier, later in pairwise(numbers)):
        raise MessageError(f"its {kind.word} name a party twice, or in disorder")
    if numbers and numbers[-1] >= len(terms.parties):
        raise MessageError(f"its {kind.word} name a party that does not exist")
    return {number: bytes(body[i * step + 2 : (i + 1) * step]) for i, number in enumerate(numbers)}


def largest(terms: Terms, kind: Kind) -> int:
    """Most bytes that a message of this kind can have."""
    body = size(terms) if kind is Kind.MASKED else len(terms.parties) * (2 + kind.width(terms))
    return HEADER.size + CHECKSUM + body


def _checksum(header: bytes, body: bytes | memoryview) -> bytes:
    found = hashlib.blake2b(header, digest_size=CHECKSUM)
    found.update(body)
    return found.digest()
