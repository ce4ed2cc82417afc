"""Checkpoints: safetensors and JSON, complete or ignored. The last two are kept, so one cut short costs nothing.

``checkpoints/000040/`` holds the state after 40 rounds; ``checkpoint.json`` is written last and carries the size and a
checksum of everything, so that a folder without it, or whose files do not match it, is not a checkpoint.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from fedrec.running.files import (
    FORMAT,
    NotWrittenError,
    checksum,
    checksum_of,
    read_object,
    read_tensors,
    write_json,
    write_tensors,
)

KEEP = 2


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """State after some rounds."""

    tensors: dict[str, dict[str, Tensor]]  # file name -> tensors
    record: dict[str, Any]


def save(folder: Path, rounds: int, checkpoint: Checkpoint, keep: Collection[int] = ()) -> None:
    """Write the checkpoint of ``rounds`` finished rounds and drop all but the newest ones and those to ``keep``.

    A failed one leaves nothing.
    """
    target = folder / f"{rounds:06d}"
    shutil.rmtree(target, ignore_errors=True)
    try:
        files = {}
        for name, group in checkpoint.tensors.items():
            path = target / f"{name}.safetensors"
            write_tensors(path, group)
            files[path.name] = checksum(path)
        content = {"files": files, "record": checkpoint.record}
        write_json(target / "checkpoint.json", {"format": FORMAT, "checksum": checksum_of(content)} | content)
    except NotWrittenError:
        shutil.rmtree(target, ignore_errors=True)
        raise
    kept = {f"{number:06d}" for number in keep}
    for old in _numbered(folder)[:-KEEP]:
        if old.name not in kept:
            shutil.rmtree(old, ignore_errors=True)


def newest(folder: Path, at_most: int | None = None) -> Path | None:
    """The newest checkpoint that is whole, of no more than ``at_most`` rounds."""
    found = [path for path in _numbered(folder) if at_most is None or int(path.name) <= at_most]
    return next((path for path in reversed(found) if _is_whole(path)), None)


def load(path: Path) -> Checkpoint:
    """A checkpoint that is whole."""
    content = read_object(path / "checkpoint.json")
    tensors = {Path(name).stem: read_tensors(path / name) for name in content["files"]}
    return Checkpoint(tensors, content["record"])


def _numbered(folder: Path) -> list[Path]:
    """The folders of checkpoints, oldest first; what else somebody put there is left alone."""
    return sorted(path for path in folder.iterdir() if path.name.isdigit()) if folder.is_dir() else []


def _is_whole(path: Path) -> bool:
    note = path / "checkpoint.json"
    try:
        content = json.loads(note.read_text(encoding="utf-8"))
        if content["checksum"] != checksum_of({key: content[key] for key in ("files", "record")}):
            return False
        return all(
            Path(name).name == name and checksum(path / name) == known for name, known in content["files"].items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False
