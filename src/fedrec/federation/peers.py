"""Processes that run one simulation together, each with a share of the clients. How they reach each other is not said here."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Peers(Protocol):
    """The processes of a simulation, as one of them sees them; all of them must make the same calls in the same order."""

    rank: int
    """Number of this process; the first one, 0, speaks and writes for all."""
    size: int
    """How many there are."""

    def add(self, values: Tensor) -> None:
        """Sum a contiguous tensor over all processes, in place; the same bits arrive everywhere."""
        ...

    def gather(self, values: Tensor) -> list[Tensor]:
        """What every process has, by rank; first axes may differ in length."""
        ...

    def collect(self, values: Tensor) -> list[Tensor]:
        """As ``gather``, for the first process; the others get nothing."""
        ...


class Alone:
    """One process."""

    rank, size = 0, 1

    def add(self, values: Tensor) -> None:
        """Nothing to add."""

    def gather(self, values: Tensor) -> list[Tensor]:
        """Its own."""
        return [values]

    def collect(self, values: Tensor) -> list[Tensor]:
        """Its own."""
        return [values]
