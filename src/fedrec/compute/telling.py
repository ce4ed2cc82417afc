"""Long computations say how far they are, to whoever listens around them; to nobody by default."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Listening = Callable[[str, int, int], None]
"""Told what is being done, and how much of how much is done."""

_listening: ContextVar[Listening | None] = ContextVar("listening", default=None)


def tell(what: str, done: int, total: int) -> None:
    """Say how far something is."""
    if (listening := _listening.get()) is not None:
        listening(what, done, total)


@contextmanager
def telling(listening: Listening) -> Iterator[None]:
    """Have all that is told in here told to ``listening``."""
    before = _listening.set(listening)
    try:
        yield
    finally:
        _listening.reset(before)
