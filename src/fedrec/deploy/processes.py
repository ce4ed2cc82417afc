"""A server and sites as processes of this machine, for trying things out: started, waited for, and always stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedrec.errors import FedrecError

GRACE = 10.0
"""Seconds a process has to end by itself."""


class Processes:
    """Commands of this package that run beside us, each with a log."""

    def __init__(self, logs: Path) -> None:
        """Logs lie in that folder."""
        self.logs = logs
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *words: str, threads: int = 1, environment: dict[str, str] | None = None) -> None:
        """Start ``fedrec`` with these words, without the switches and data that only this process should have."""
        self.logs.mkdir(parents=True, exist_ok=True)
        settings = dict(os.environ) | {"OMP_NUM_THREADS": str(threads), "PYTHONUNBUFFERED": "1"} | (environment or {})
        with (self.logs / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", "fedrec", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=settings,
            )

    def log(self, name: str) -> str:
        """What a process has said."""
        path = self.logs / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_for(self, name: str, words: str, seconds: float, times: int = 1) -> None:
        """Wait until a process has said something."""
        end = time.monotonic() + seconds
        while self.log(name).count(words) < times:
            if self.running[name].poll() is not None:
                raise FedrecError(f"{name} has ended: {self.log(name)[-600:]}")
            if time.monotonic() > end:
                raise FedrecError(f"{name} did not get ready within {seconds:.0f} s: {self.log(name)[-600:]}")
            time.sleep(0.1)

    def kill(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        """End a process at once."""
        process = self.running.pop(name)
        process.send_signal(how)
        process.wait(GRACE)

    def stop(self) -> None:
        """End everything; what was started first, the server, last, so that the others can take their leave of it."""
        found = list(self.running.values())
        self.running.clear()
        for some in (found[1:], found[:1]):
            for process in some:
                process.terminate()
            end = time.monotonic() + GRACE
            for process in some:
                try:
                    process.wait(max(0.1, end - time.monotonic()))
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


@contextmanager
def processes(logs: Path) -> Iterator[Processes]:
    """Processes that are stopped in the end, whatever happens."""
    found = Processes(logs)
    try:
        yield found
    finally:
        found.stop()
