"""Numbers in a ring: fixed-point code, masks added modulo 2^64 or 2^32, and the sum read back.

A number x is written as the whole number round(x 2^fraction) modulo the ring. What a party may have is bounded, checked
before anything is masked, and the terms choose a ring in which the sum over all parties fits with its sign. So the sum
of codes is the code of the sum, exactly; the only error is the rounding of every party, at most 2^-(fraction + 1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrec.errors import ConfigError
from fedrec.federation.total import Total
from fedrec.secure.keys import Stream
from fedrec.secure.terms import Array, Terms, dtype_of

CHUNK = 1 << 16
"""Numbers of a mask that are made at a time."""


class RingVector:
    """All arrays of a round as one block of bytes: those modulo 2^64 first, then those modulo 2^32, little-endian."""

    def __init__(self, terms: Terms, data: bytes | memoryview | None = None) -> None:
        """Zeros, or a copy of ``data``."""
        self.terms = terms
        self._bytes = np.zeros(size(terms), np.uint8)
        if data is not None:
            self._bytes[:] = np.frombuffer(data, np.uint8)
        wide = 8 * sum(array.numbers for array in terms.arrays if terms.ring(array) == 64)
        self._wide = self._bytes[:wide].view("<u8")
        self._narrow = self._bytes[wide:].view("<u4")

    @staticmethod
    def encode(terms: Terms, total: Mapping[str, Tensor]) -> RingVector:
        """The code of a party's sums; those it does not have are 0."""
        if unknown := set(total) - {array.name for array in terms.arrays}:
            raise ConfigError(f"the array '{min(unknown)}' is not in the terms of the secure sum")
        vector = RingVector(terms)
        for array, place in vector._places():
            if array.name in total:
                place[:] = _code(array, total[array.name]).view(np.uint64).astype(place.dtype)
        return vector

    def decode(self) -> Total:
        """The numbers of this code."""
        found = {}
        for array, place in self._places():
            whole = place.view("<i8" if place.itemsize == 8 else "<i4").astype(np.int64)
            if array.dtype.startswith("float"):
                value = torch.from_numpy(np.ldexp(whole.astype(np.float64), -array.fraction))
            else:
                value = torch.from_numpy(whole)
            found[array.name] = value.to(dtype_of(array)).reshape(array.shape)
        return Total(found)

    def mask(self, key: bytes, sign: int) -> None:
        """Add (1) or take away (-1) the stream of a key, in place."""
        stream = Stream(key)
        change = np.add if sign > 0 else np.subtract
        for part in (self._wide, self._narrow):
            for first in range(0, len(part), CHUNK):
                block = part[first : first + CHUNK]
                change(block, np.frombuffer(stream.take(block.nbytes), part.dtype), out=block)

    def add(self, other: RingVector) -> None:
        """Add another vector of the same terms, in place."""
        self._wide += other._wide
        self._narrow += other._narrow

    @property
    def data(self) -> memoryview:
        """Its bytes, not a copy."""
        return self._bytes.data

    def _places(self) -> Iterator[tuple[Array, NDArray[np.unsignedinteger]]]:
        first = {32: 0, 64: 0}
        for array in self.terms.arrays:
            ring = self.terms.ring(array)
            part = self._wide if ring == 64 else self._narrow
            yield array, part[first[ring] : first[ring] + array.numbers]
            first[ring] += array.numbers


def size(terms: Terms) -> int:
    """Bytes of a vector."""
    return sum(array.numbers * terms.ring(array) // 8 for array in terms.arrays)


def _code(array: Array, value: Tensor) -> NDArray[np.int64]:
    if tuple(value.shape) != array.shape or value.dtype != dtype_of(array):
        found = f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
        raise ConfigError(f"the array '{array.name}' is {found}, not {array.dtype} {list(array.shape)}")
    numbers = value.detach().cpu().reshape(-1).numpy()
    if array.dtype.startswith("float"):
        if not np.isfinite(numbers).all():
            raise ConfigError(f"the array '{array.name}' holds numbers that are not finite; nothing is sent")
        numbers = np.rint(np.ldexp(numbers.astype(np.float64), array.fraction))
    low, high = (numbers.min().item(), numbers.max().item()) if numbers.size else (0, 0)
    if low < -array.largest or high > array.largest:
        largest = max(-low, high) / 2**array.fraction
        raise ConfigError(
            f"the array '{array.name}' has values up to {largest:g}, beyond the agreed {array.bound:g}; "
            "nothing is sent: raise the bound, or clip"
        )
    return numbers.astype(np.int64)
