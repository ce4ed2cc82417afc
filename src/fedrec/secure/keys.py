"""The cryptography: X25519 key agreement, HKDF-SHA256, ChaCha20 streams, sealed envelopes, Ed25519 signatures and Shamir's shares.

All of it is that of two libraries (extra ``deploy``), which are loaded when they are first used. Secrets are seeds of 16
bytes, the 128 bits of security that X25519 has, because this is what Shamir's shares over GF(2^128) hold. Every key is
derived for one purpose, one round and one pair or party, and encrypts one thing; so no nonce is ever used twice.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec

from fedrec.errors import FedrecError

SEED = 16
"""Bytes of a secret that is shared, and of a share."""
KEY = 32
"""Bytes of every other key."""
SIGNATURE = 64
"""Bytes."""
SEAL = 16
"""Bytes that an envelope is longer than what is in it."""


def require() -> None:
    """Say which library is missing."""
    for module, package in (("cryptography", "cryptography"), ("Crypto", "pycryptodome")):
        if find_spec(module) is None:
            raise FedrecError(f"secure aggregation needs {package}: pip install 'fedrec[deploy]'")


def derive(secret: bytes, salt: bytes, purpose: str) -> bytes:
    """A key for one purpose from a secret."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), KEY, salt, f"fedrec secure {purpose}".encode()).derive(secret)


def fresh_seed() -> bytes:
    """A secret from the operating system's randomness."""
    return os.urandom(SEED)


class KeyPair:
    """An X25519 pair that follows from a seed."""

    def __init__(self, seed: bytes, salt: bytes) -> None:
        """The salt ties it to a round."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        self._private = X25519PrivateKey.from_private_bytes(derive(seed, salt, "key pair"))
        self.public = self._private.public_key().public_bytes_raw()

    def agree(self, other: bytes) -> bytes:
        """What this pair and the owner of the public key ``other`` know, and nobody else; ValueError for a bad key."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

        return self._private.exchange(X25519PublicKey.from_public_bytes(other))


class Stream:
    """The ChaCha20 stream of a key, from its beginning."""

    def __init__(self, key: bytes) -> None:
        """A key makes one stream and is used for nothing else, so the nonce is 0."""
        from cryptography.hazmat.primitives.ciphers import Cipher
        from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

        self._cipher = Cipher(ChaCha20(key, bytes(16)), None).encryptor()
        self._zeros, self._out = b"", bytearray()

    def take(self, size: int) -> memoryview:
        """The next bytes; valid until the next call."""
        if len(self._out) < size:
            self._zeros, self._out = bytes(size), bytearray(size)
        self._cipher.update_into(memoryview(self._zeros)[:size], memoryview(self._out)[:size])
        return memoryview(self._out)[:size]


def seal(key: bytes, content: bytes) -> bytes:
    """Encrypt and authenticate the one thing that this key is for."""
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    return ChaCha20Poly1305(key).encrypt(bytes(12), content, None)


def unseal(key: bytes, sealed: bytes) -> bytes:
    """What is in it; ValueError where it was changed, or sealed with another key."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    try:
        return ChaCha20Poly1305(key).decrypt(bytes(12), sealed, None)
    except InvalidTag:
        raise ValueError("it does not open") from None


def signing_key() -> tuple[bytes, bytes]:
    """A fresh Ed25519 key and its public key."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.generate()
    return private.private_bytes_raw(), private.public_key().public_bytes_raw()


def sign(private: bytes, content: bytes) -> bytes:
    """The Ed25519 signature."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(private).sign(content)


def verify(public: bytes, signature: bytes, content: bytes) -> bool:
    """Whether the owner of a public key signed this."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, content)
    except (InvalidSignature, ValueError):
        return False
    return True


def split(secret: bytes, threshold: int, parties: int) -> list[bytes]:
    """Shamir's shares of a seed, one per party; ``threshold`` of them give it back, fewer say nothing about it."""
    from Crypto.Protocol.SecretSharing import Shamir

    return [bytes(share) for _, share in Shamir.split(threshold, parties, secret, False)]


def combine(shares: Mapping[int, bytes]) -> bytes:
    """The seed whose shares these parties, counted from 0, hold: exactly as many as the threshold."""
    from Crypto.Protocol.SecretSharing import Shamir

    return bytes(Shamir.combine([(party + 1, share) for party, share in shares.items()], False))
