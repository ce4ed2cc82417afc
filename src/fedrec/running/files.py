"""Files that are whole or not there: written beside their place, then moved. What is read is checked before it is used."""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from fedrec.errors import FedrecError

FORMAT = 1
"""Version of the files of a run folder. Raise it when older ones can no longer be read."""

Checksum = list[int]
"""Size and CRC-32 of a file: notices damage, not a forger."""


class NotWrittenError(FedrecError):
    """A file that could not be written: no space, no permission."""


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """A place beside ``path`` to write to; what stands there at the end becomes ``path`` in one step."""
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.replace(path)
    except (OSError, SafetensorError) as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise NotWrittenError(f"{path} cannot be written ({reason(error)})") from None
    except BaseException:  # what was to be written could not be made, or somebody has stopped it
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def reason(error: Exception) -> str:
    """Why a file could not be read or written, in a few words."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    number = re.search(r"os error (\d+)", str(error))  # how safetensors tells of what the system said
    return os.strerror(int(number[1])) if number else str(error).splitlines()[0]


def write_text(path: Path, text: str) -> None:
    """Write atomically."""
    with writing(path) as part:
        part.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write atomically, readable by people and by every JSON reader: no NaN, no infinity."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def write_tensors(path: Path, tensors: dict[str, Tensor], about: dict[str, str] | None = None) -> None:
    """Write atomically in the safetensors format, with words ``about`` it."""
    with writing(path) as part:
        save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, part, about)


def append_line(path: Path, text: str) -> None:
    """Add a line to a log."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text + "\n")
    except OSError as error:
        raise NotWrittenError(f"{path} cannot be written ({reason(error)})") from None


def read_object(path: Path, remedy: str = "train again") -> dict[str, Any]:
    """A JSON object of this format version."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise FedrecError(f"{path} cannot be read as JSON ({reason(error)}); {remedy}.") from None
    if not isinstance(content, dict):
        raise FedrecError(f"{path} does not hold a JSON object; {remedy}.")
    found = content.get("format")
    if isinstance(found, int) and not isinstance(found, bool) and found > FORMAT:
        raise FedrecError(
            f"{path} was written by a newer version of fedrec (format {found}); update fedrec to read it."
        )
    if found != FORMAT or isinstance(found, bool):
        raise FedrecError(
            f"{path} is damaged or was written by an older version of fedrec (no format {FORMAT}); {remedy}."
        )
    return content


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Named tensors of a safetensors file."""
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise FedrecError(f"{path} cannot be read ({reason(error)}); train again.") from None
    return tensors


def checksum(path: Path) -> Checksum:
    """Size and checksum of a file."""
    value, size = 0, 0
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            value, size = zlib.crc32(block, value), size + len(block)
    return [size, value]


def checksum_of(value: Any) -> Checksum:
    """Size and checksum of plain values, however they are laid out in a file."""
    text = json.dumps(value, sort_keys=True).encode()
    return [len(text), zlib.crc32(text)]
