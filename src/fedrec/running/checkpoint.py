"""Checkpoints: safetensors and JSON, complete or ignored. The last two are kept, so one cut short costs nothing.

``checkpoints/000040/`` holds the state after 40 rounds; ``checkpoint.json`` is written last and carries the size and a
checksum of every other file, so that a folder without it, or whose files do not match it, is not a checkpoint.
"""

from __future__ import annotations

import json
import shutil
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from fedrec.running.files import write_json, write_tensors

KEEP = 2


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """State after some rounds."""

    tensors: dict[str, dict[str, Tensor]]  # file name -> tensors
    record: dict[str, Any]


def save(folder: Path, rounds: int, checkpoint: Checkpoint) -> None:
    """Write the checkpoint of ``rounds`` finished rounds and drop all but the newest ones."""
    target = folder / f"{rounds:06d}"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    files = {}
    for name, group in checkpoint.tensors.items():
        path = target / f"{name}.safetensors"
        write_tensors(path, group)
        files[path.name] = _checksum(path)
    write_json(target / "checkpoint.json", {"files": files, "record": checkpoint.record})
    for old in sorted(folder.iterdir())[:-KEEP]:
        shutil.rmtree(old, ignore_errors=True)


def load_newest(folder: Path) -> Checkpoint | None:
    """The newest checkpoint that is whole, or None."""
    for found in sorted(folder.iterdir(), reverse=True) if folder.is_dir() else []:
        try:
            content = json.loads((found / "checkpoint.json").read_text())
            if all(_checksum(found / name) == [*known] for name, known in content["files"].items()):
                tensors = {Path(name).stem: load_file(found / name) for name in content["files"]}
                return Checkpoint(tensors, content["record"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError):
            continue
    return None


def _checksum(path: Path) -> list[int]:
    value, size = 0, 0
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            value, size = zlib.crc32(block, value), size + len(block)
    return [size, value]
