"""Threads that wait must sleep: one that spins takes a core away from whoever has work.

torch's threads (OpenMP) spin at the end of every parallel operation, for longer than most operations last. With the machine
to itself nobody notices. As soon as another process wants a core, the thread waited for has none to run on, and an
operation takes a hundred times as long. The choice is read once, when torch is loaded.
"""

from __future__ import annotations

import os

CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


def let_threads_sleep() -> None:
    """Ask for sleeping threads, unless the user has chosen; in vain where torch was imported before this package."""
    if not any(name in os.environ for name in CHOICES):
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
