"""Files that are whole or not there: written beside their place, then moved."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor


def write_text(path: Path, text: str) -> None:
    """Write atomically."""
    part = path.with_name(path.name + ".part")
    with part.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def write_json(path: Path, value: Any) -> None:
    """Write atomically, readable by people."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write atomically in the safetensors format."""
    part = path.with_name(path.name + ".part")
    save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, part)
    with part.open("rb+") as file:
        os.fsync(file.fileno())
    part.replace(path)
