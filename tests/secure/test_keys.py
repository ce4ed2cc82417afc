"""Keys, streams and shares against published examples and against the libraries' own primitives."""

from __future__ import annotations

import hmac
import subprocess
import sys
from hashlib import sha256
from itertools import combinations

import pytest

from fedrec.errors import FedrecError
from fedrec.secure import keys
from fedrec.secure.keys import KeyPair, Stream, combine, derive, seal, split, unseal
from fedrec.secure.purposes import commitment, envelope, mask_sign, own_mask, pair_mask
from secure.rounds import a_round

SALT = bytes(range(32))


def by_hand(secret: bytes, salt: bytes, purpose: bytes) -> bytes:
    """HKDF-SHA256 (RFC 5869) of one block: extract, then expand."""
    extracted = hmac.digest(salt, secret, sha256)
    return hmac.digest(extracted, b"fedrec secure " + purpose + b"\x01", sha256)


def test_derived_keys_are_hkdf() -> None:
    assert derive(b"a secret", SALT, "test") == by_hand(b"a secret", SALT, b"test")


def test_hkdf_of_the_library_is_that_of_the_rfc() -> None:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    made = HKDF(SHA256(), 42, bytes(range(13)), bytes(range(0xF0, 0xFA))).derive(b"\x0b" * 22)
    assert made.hex() == "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"


def test_agreement_is_x25519(monkeypatch) -> None:
    """RFC 7748, section 5.2: the base point with itself, once; and the library's own exchange."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    monkeypatch.setattr(keys, "derive", lambda seed, salt, purpose: seed)
    base = bytes([9]) + bytes(31)
    once = KeyPair(base, b"").public
    assert once.hex() == "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079"
    one, other = KeyPair(SALT, b""), KeyPair(SALT[::-1], b"")
    theirs = X25519PrivateKey.from_private_bytes(SALT).exchange(other._private.public_key())
    assert one.agree(other.public) == other.agree(one.public) == theirs


def test_stream_is_chacha20_from_its_beginning() -> None:
    """RFC 8439, appendix A.1, vector 1 (key, nonce and counter 0), however it is taken."""
    first = "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7da41597c5157488d7724e03fb8d84a37"
    assert bytes(Stream(bytes(32)).take(48)).hex() == first
    stream, whole = Stream(SALT), bytes(Stream(SALT).take(1000))
    assert bytes(stream.take(600)) + bytes(stream.take(7)) + bytes(stream.take(393)) == whole


def test_an_envelope_opens_with_its_key_only() -> None:
    sealed = seal(SALT, b"two shares")
    assert unseal(SALT, sealed) == b"two shares"
    for key, data in ((bytes(32), sealed), (SALT, sealed[:-1]), (SALT, bytes([sealed[0] ^ 1]) + sealed[1:])):
        with pytest.raises(ValueError, match="does not open"):
            unseal(key, data)


def test_low_order_keys_are_refused() -> None:
    with pytest.raises(ValueError):
        KeyPair(bytes(16), SALT).agree(bytes(32))


def test_as_many_shares_as_the_threshold_give_the_seed() -> None:
    seed = bytes(range(16))
    shares = split(seed, 3, 5)
    for chosen in combinations(range(5), 3):
        assert combine({party: shares[party] for party in chosen}) == seed


def test_fewer_shares_fit_every_seed() -> None:
    """With any two of the shares, and a third one that may be anything, every seed is as likely."""
    shares = split(bytes(16), 3, 5)
    guesses = {combine({0: shares[0], 1: shares[1], 2: bytes([guess]) + shares[2][1:]}) for guess in range(256)}
    assert len(guesses) == 256
    assert combine({0: shares[0], 1: shares[1]}) != bytes(16)


def test_both_ends_of_a_pair_make_the_same_mask_and_it_is_of_this_round() -> None:
    one, other = a_round().terms, a_round().terms
    a, b = KeyPair(b"a" * 16, SALT), KeyPair(b"b" * 16, SALT)
    assert pair_mask(one, a, b.public, 0, 1) == pair_mask(one, b, a.public, 1, 0)
    assert {mask_sign(0, 1), mask_sign(1, 0)} == {1, -1}
    assert envelope(one, a, b.public, 0, 1) == envelope(one, b, a.public, 0, 1)
    made = [
        key
        for terms in (one, other)
        for key in (
            pair_mask(terms, a, b.public, 0, 1),
            pair_mask(terms, a, b.public, 0, 2),
            envelope(terms, a, b.public, 0, 1),
            envelope(terms, a, b.public, 1, 0),
            own_mask(terms, b"a" * 16, 0),
            own_mask(terms, b"a" * 16, 1),
            commitment(terms, b"a" * 16, 0),
        )
    ]
    assert len(set(made)) == len(made)
    assert KeyPair(b"a" * 16, one.digest).public != KeyPair(b"a" * 16, other.digest).public


def test_a_missing_library_is_a_sentence(monkeypatch) -> None:
    monkeypatch.setattr(keys, "find_spec", lambda module: None if module == "Crypto" else object())
    with pytest.raises(FedrecError, match=r"needs pycryptodome: pip install 'fedrec\[deploy\]'"):
        a_round()


def test_libraries_are_loaded_when_they_are_used() -> None:
    program = (
        "import sys, fedrec.secure.in_process\n"
        "print([n for n in ('cryptography', 'Crypto', 'flwr') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
