"""Where compiled CPU kernels are kept: a folder named after the content of all of them.

numba looks at the file of a kernel only. A kernel contains what it calls, though, also from other files, so one whose own
file is unchanged can be stale. The folder's name is a hash over every file that holds kernels: whatever changes in one
of them, all are compiled anew, and other versions of this package keep theirs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import numba
import platformdirs

PACKAGE = Path(__file__).parents[1]
MONTH = 30 * 24 * 3600.0
"""Seconds after which a folder nobody used is removed."""


def kernel_files(package: Path = PACKAGE) -> list[Path]:
    """Every file of the package that holds compiled functions: ``cpu.py``, ``cpu_*.py``, and all in folders ``cpu``."""
    return sorted({*package.glob("**/cpu.py"), *package.glob("**/cpu_*.py"), *package.glob("**/cpu/*.py")})


def fingerprint(package: Path = PACKAGE) -> str:
    """A hash of the names and contents of all kernel files."""
    digest = hashlib.sha256()
    for path in kernel_files(package):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(package).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:20]


@contextmanager
def cached_beside_its_like() -> Iterator[bool]:
    """While it lasts, numba keeps what is compiled in the folder of these kernels; False where there can be none."""
    folder, before = _folder(), numba.config.CACHE_DIR
    if folder is not None:
        numba.config.CACHE_DIR = str(folder)
    try:
        yield folder is not None
    finally:
        numba.config.CACHE_DIR = before


@cache
def _folder() -> Path | None:
    """The folder, made for this user alone, or None where none can be written."""
    base = numba.config.CACHE_DIR or os.environ.get("FEDREC_CACHE") or platformdirs.user_cache_dir("fedrec")
    folder = Path(base) / "kernels" / fingerprint()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.utime(folder)
    except OSError:
        return None
    _remove_unused(folder.parent)
    return folder if os.access(folder, os.W_OK | os.X_OK) else None


def _remove_unused(parent: Path) -> None:
    oldest = time.time() - MONTH
    for other in parent.iterdir():
        with suppress(OSError):
            if other.is_dir() and other.stat().st_mtime < oldest:
                shutil.rmtree(other, ignore_errors=True)
