"""Signatures, for terms that want them: a party says by which key of its own the others know it.

Without them a server that does not follow the protocol could hand out keys of its own in the name of parties, or call
different parties alive to different ones. With them both are noticed before anything is opened.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fedrec.errors import ConfigError
from fedrec.secure.keys import sign, signing_key, verify
from fedrec.secure.terms import Terms


@dataclass(frozen=True)
class Identity:
    """A party's lasting Ed25519 key (32 bytes), and the public keys of all parties, learned from somebody else than the server."""

    private: bytes = field(repr=False)
    known: tuple[bytes, ...]

    def sign_keys(self, terms: Terms, party: int, record: bytes) -> bytes:
        """Signature of this party's keys of the round."""
        return sign(self.private, _keys(terms, party, record))

    def sign_alive(self, terms: Terms, alive: Iterable[int]) -> bytes:
        """Signature of a list of who is alive."""
        return sign(self.private, _alive(terms, alive))


def identities(parties: int) -> list[Identity]:
    """Fresh identities of parties that all know each other."""
    pairs = [signing_key() for _ in range(parties)]
    return [Identity(private, tuple(public for _, public in pairs)) for private, _ in pairs]


def check_identity(terms: Terms, party: int, identity: Identity | None) -> None:
    """One sentence where a party's identity and the terms do not fit each other."""
    if identity is None:
        if terms.signed:
            raise ConfigError("these terms want signatures, and this party has no identity to sign with")
        return
    if not terms.signed:
        raise ConfigError("this party signs and wants others to, and these terms are without signatures")
    if len(identity.known) != len(terms.parties):
        raise ConfigError(f"{len(identity.known)} identities are known, and {len(terms.parties)} parties take part")
    if not verify(identity.known[party], sign(identity.private, b""), b""):
        raise ConfigError(f"the identity of {terms.parties[party]} is known by another key than the one it signs with")


def keys_signed(known: Sequence[bytes], terms: Terms, party: int, record: bytes, signature: bytes) -> bool:
    """Whether a party's keys are signed by it."""
    return verify(known[party], signature, _keys(terms, party, record))


def alive_signed(known: Sequence[bytes], terms: Terms, party: int, alive: Iterable[int], signature: bytes) -> bool:
    """Whether a party was told the same list of who is alive."""
    return verify(known[party], signature, _alive(terms, alive))


def _keys(terms: Terms, party: int, record: bytes) -> bytes:
    return b"fedrec secure keys" + terms.digest + struct.pack("<H", party) + record


def _alive(terms: Terms, alive: Iterable[int]) -> bytes:
    return b"fedrec secure alive" + terms.digest + b"".join(struct.pack("<H", party) for party in sorted(alive))
