"""The bytes of a file, unpacked if they are packed, whatever its name; never more than memory can hold."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from fedrec.errors import DataError

_PIECE = 1 << 24
_GZIP, _ZIP = b"\x1f\x8b", b"PK\x03\x04"
_PACKED_AT_MOST = 1032  # times smaller than what was packed; the format of gzip allows no more
_OTHERS: dict[bytes, tuple[str, Callable[[bytes], Any]]] = {
    b"BZh": ("bzip2", lambda data: bz2.BZ2File(io.BytesIO(data))),
    b"\xfd7zXZ\x00": ("xz", lambda data: lzma.LZMAFile(io.BytesIO(data))),  # noqa: SIM115
    b"\x28\xb5\x2f\xfd": ("zstd", lambda data: pa.CompressedInputStream(pa.BufferReader(data), "zstd")),
}


def content(path: Path) -> bytes:
    """The bytes of a file: plain, gzip, bzip2, xz, zstd, or the only file of a zip archive."""
    data = _bytes(path)
    if data.startswith(_GZIP):
        return _gunzip(path, data)
    if path.suffix == ".gz":
        raise DataError(f"{path}: not a gzip file in spite of its name; rename it or pack it with gzip.")
    if data.startswith(_ZIP):
        return _only_member(path, data)
    for sign, (kind, opened) in _OTHERS.items():
        if data.startswith(sign):
            return _unpacked(path, kind, lambda opened=opened: opened(data))  # type: ignore[misc]
    return data


def most_bytes() -> int:
    """The most bytes of rows it makes sense to read here."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _bytes(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except IsADirectoryError:
        raise DataError(f"{path}: this is a folder; name the file in it.") from None
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file.") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise DataError(f"{path}: the file cannot be read ({reason}).") from None
    if not data:
        raise DataError(f"{path}: the file is empty.")
    return data


def _gunzip(path: Path, data: bytes) -> bytes:
    try:
        if len(data) * _PACKED_AT_MOST > most_bytes():
            with gzip.open(io.BytesIO(data)) as file:
                _pieces(path, file, keep=False)
        return gzip.decompress(data)
    except EOFError:
        raise DataError(f"{path}: the gzip file is cut short; copy or download it again.") from None
    except (OSError, zlib.error) as error:
        raise DataError(f"{path}: the gzip file is damaged ({error}); copy or download it again.") from None


def _only_member(path: Path, data: bytes) -> bytes:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = [one.filename for one in archive.infolist() if not one.is_dir()]
            if len(names) != 1:
                raise DataError(
                    f"{path}: the zip archive holds {len(names)} files; unpack it and name the one to read."
                )
            return _unpacked(path, "zip", lambda: archive.open(names[0]))
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise DataError(f"{path}: the zip archive is damaged ({error}); copy or download it again.") from None


def _unpacked(path: Path, kind: str, opened: Callable[[], Any]) -> bytes:
    try:
        with opened() as file:
            return _pieces(path, file, keep=True)
    except EOFError:
        raise DataError(f"{path}: the {kind} file is cut short; copy or download it again.") from None
    except (OSError, lzma.LZMAError, zlib.error, pa.ArrowException) as error:
        raise DataError(f"{path}: the {kind} file is damaged ({error}); copy or download it again.") from None


def _pieces(path: Path, file: Any, keep: bool) -> bytes:
    """What a packed file holds, piece by piece, so that one that unpacks to more than memory holds is refused before."""
    kept, unpacked, most = bytearray(), 0, most_bytes()
    while piece := file.read(_PIECE):
        unpacked += len(piece)
        if unpacked > most:
            raise DataError(f"{path}: unpacks to more than {most:,} bytes, half of this machine's memory; split it.")
        if keep:
            kept += piece
    return bytes(kept)
