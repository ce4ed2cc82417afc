"""How keys of a round follow from secrets: the same derivations for parties and the server.

Each is tied to the round by the digest of its terms, and to who uses it with whom.
"""

from __future__ import annotations

from fedrec.secure.keys import KeyPair, derive
from fedrec.secure.terms import Terms


def pair_mask(terms: Terms, pair: KeyPair, public: bytes, one: int, other: int) -> bytes:
    """The key of the mask between two parties, from either's pair: the lower number adds it, the higher takes it away."""
    low, high = sorted((one, other))
    return derive(pair.agree(public), terms.digest, f"mask {low} {high}")


def own_mask(terms: Terms, seed: bytes, party: int) -> bytes:
    """The key of a party's mask of its own."""
    return derive(seed, terms.digest, f"own mask {party}")


def commitment(terms: Terms, seed: bytes, party: int) -> bytes:
    """What a party says of its seed beforehand, so that a wrong one is noticed; it tells nothing about the seed."""
    return derive(seed, terms.digest, f"commitment {party}")


def envelope(terms: Terms, pair: KeyPair, public: bytes, sender: int, receiver: int) -> bytes:
    """The key of the one envelope from a party to another."""
    return derive(pair.agree(public), terms.digest, f"envelope {sender} {receiver}")


def mask_sign(party: int, other: int) -> int:
    """Whether a party adds the mask it has with another, or takes it away."""
    return 1 if party < other else -1
