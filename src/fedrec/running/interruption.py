"""The first Ctrl-C asks a run to end after the round; the second one ends it at once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruptible() -> Iterator[list[bool]]:
    """A list that is no longer empty once the user wishes to stop."""
    stop: list[bool] = []

    def ask(number: int, frame: FrameType | None) -> None:
        if stop:
            raise KeyboardInterrupt
        stop.append(True)

    try:
        before = signal.signal(signal.SIGINT, ask)
    except ValueError:  # not the main thread: leave signals alone
        yield stop
        return
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
