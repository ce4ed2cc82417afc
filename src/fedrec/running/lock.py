"""One process at a time works in a run folder.

The lock is the operating system's (``flock``), which lets go of it when its owner ends, however that happens. So a lock is never
stale; the text in the file only says who holds it.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedrec.errors import ConfigError
from fedrec.running.files import NotWrittenError, reason


class InUseError(ConfigError):
    """A folder that another process works in."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a run folder; refused while another process (or thread) holds it."""
    path = folder / "lock"
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise NotWrittenError(f"{path} cannot be written ({reason(error)})") from None
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InUseError(
                f"{folder} is in use by {_owner(path)}; wait until it has ended or choose another run folder."
            ) from None
        except OSError:  # some network file systems have no locks, so there is nothing to hold
            yield
            return
        with suppress(OSError):
            _sign(file)
        yield
        with suppress(OSError):
            os.ftruncate(file, 0)
    finally:
        os.close(file)


def _sign(file: int) -> None:
    owner = {"process": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
    os.ftruncate(file, 0)
    os.write(file, (json.dumps(owner) + "\n").encode())


def _owner(path: Path) -> str:
    try:
        owner = json.loads(path.read_text())
        return f"process {owner['process']} on {owner['host']} (since {owner['since']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
