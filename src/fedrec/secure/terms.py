"""The terms of a round: who takes part, how many must stay, which arrays are summed and how their numbers are written.

All parties hold the same terms before a message is sent, and every message carries their digest. So a message of another
round, another session or other settings is known at once.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from math import frexp, ldexp, prod
from typing import Annotated, Literal

import torch
from pydantic import Field, ValidationError, field_validator, model_validator
from torch import Tensor

from fedrec.errors import ConfigError
from fedrec.secure.errors import MessageError
from fedrec.settings import Settings

MOST_NUMBERS = 1 << 30
"""Numbers in one upload: 8 GiB, far below where a ChaCha20 stream ends."""
MOST_PARTIES = 1000
LARGEST_TERMS = 1 << 20
"""Bytes."""
FINEST = 60
"""Binary digits behind the point, at most."""


class Array(Settings):
    """One named array and how its numbers are written."""

    name: str = Field(min_length=1, max_length=200)
    """Its name in the total."""
    shape: tuple[Annotated[int, Field(ge=0, le=MOST_NUMBERS)], ...]
    """Its shape."""
    dtype: Literal["float32", "float64", "int32", "int64"]
    """What the sum becomes again."""
    fraction: int = Field(ge=0, le=FINEST)
    """Binary digits behind the point: numbers are rounded to multiples of 2^-fraction."""
    bound: float = Field(gt=0, le=2.0**63)
    """Largest absolute value that a party may have in it."""

    @model_validator(mode="after")
    def _whole(self) -> Array:
        if self.dtype.startswith("int") and self.fraction:
            raise ValueError(f"array '{self.name}' holds whole numbers, so its fraction is 0")
        if not self.largest:
            raise ValueError(f"array '{self.name}' has a bound of {self.bound:g}, finer than its numbers are written")
        return self

    @property
    def numbers(self) -> int:
        """How many."""
        return prod(self.shape)

    @property
    def largest(self) -> int:
        """Largest absolute value as a whole number of 2^-fraction, of one party."""
        return round(ldexp(self.bound, self.fraction))


class Terms(Settings):
    """Terms of one round."""

    session: str = Field(pattern="^[0-9a-f]{32}$")
    """Drawn at random for every round, also for one that is tried again."""
    round: int = Field(ge=0)
    """The round of the run."""
    parties: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...] = Field(
        min_length=2, max_length=MOST_PARTIES
    )
    """Their names; a party's number is its place here."""
    threshold: int = Field(ge=2)
    """How many must stay to the end: more than half of the parties."""
    signed: bool = False
    """Parties sign their keys and the list of who is alive."""
    arrays: tuple[Array, ...] = Field(min_length=1, max_length=10_000)
    """What is summed."""

    @field_validator("parties", "arrays")
    @classmethod
    def _distinct(cls, values: tuple[str | Array, ...]) -> tuple[str | Array, ...]:
        if len({value if isinstance(value, str) else value.name for value in values}) < len(values):
            raise ValueError("a name is in it twice")
        return values

    @model_validator(mode="after")
    def _fits(self) -> Terms:
        n = len(self.parties)
        if not n < 2 * self.threshold <= 2 * n:
            raise ValueError(f"the threshold of {n} parties is {n // 2 + 1} to {n}, not {self.threshold}")
        if sum(array.numbers for array in self.arrays) > MOST_NUMBERS:
            raise ValueError(f"more than {MOST_NUMBERS:,} numbers in one sum")
        for array in self.arrays:
            self.ring(array)
        return self

    def ring(self, array: Array) -> int:
        """32 or 64: the smallest ring in which the sum over all parties cannot overflow."""
        most = len(self.parties) * array.largest
        if array.dtype == "int32" and most >= 1 << 31:
            raise ValueError(f"the sum of '{array.name}' can be {most:,}, which int32 does not hold")
        for bits in (32, 64):
            if most < 1 << (bits - 1):
                return bits
        raise ValueError(
            f"the sum of '{array.name}' over {len(self.parties)} parties, each up to {array.bound:g} with "
            f"{array.fraction} binary digits behind the point, can overflow 64 bits; choose fewer digits or a smaller bound"
        )

    @cached_property
    def encoded(self) -> bytes:
        """The terms as bytes, the same for everybody."""
        return self.model_dump_json().encode()

    @cached_property
    def digest(self) -> bytes:
        """32 bytes that stand for these terms."""
        return hashlib.sha256(b"fedrec secure aggregation 1\n" + self.encoded).digest()

    @staticmethod
    def decode(data: bytes) -> Terms:
        """The terms in these bytes, or one sentence about what is wrong with them."""
        if len(data) > LARGEST_TERMS:
            raise MessageError(f"terms of {len(data):,} bytes; {LARGEST_TERMS:,} is the most")
        try:
            return Terms.model_validate_json(data)
        except ValidationError as error:
            raise MessageError(f"these terms are refused: {_first(error)}") from None


def _first(error: ValidationError) -> str:
    found = error.errors()[0]
    where = ".".join(str(part) for part in found["loc"])
    return f"{where}: {found['msg']}" if where else str(found["msg"])


def propose(
    like: Mapping[str, Tensor],
    parties: Sequence[str],
    bounds: Mapping[str, float],
    *,
    round: int = 0,
    threshold: int | None = None,
    ring: Literal[32, 64] = 64,
    signed: bool = False,
) -> Terms:
    """Terms of a new session for sums of this form; the threshold is a majority unless stated.

    Floats get as many digits as fit into ``ring`` bits; 32 halves what is sent. Whole numbers take what their bound needs.
    """
    try:
        arrays = tuple(
            Array(
                name=name,
                shape=tuple(value.shape),
                dtype=str(value.dtype).removeprefix("torch."),
                fraction=_digits(len(parties) * bounds[name], ring) if value.is_floating_point() else 0,
                bound=bounds[name],
            )
            for name, value in like.items()
        )
        least = len(parties) // 2 + 1 if threshold is None else threshold
        return Terms(
            session=os.urandom(16).hex(),
            round=round,
            parties=tuple(parties),
            threshold=least,
            signed=signed,
            arrays=arrays,
        )
    except KeyError as error:
        raise ConfigError(f"there is no bound for the array '{error.args[0]}'") from None
    except ValidationError as error:
        raise ConfigError(f"a secure sum cannot be taken so: {_first(error)}") from None


def _digits(most: float, ring: int) -> int:
    """So many binary digits behind the point that sums of up to ``most`` fit with their sign, and one bit is left."""
    return min(FINEST, max(0, ring - 2 - frexp(most)[1]))


def dtype_of(array: Array) -> torch.dtype:
    """Torch's name of it."""
    found: torch.dtype = getattr(torch, array.dtype)
    return found
