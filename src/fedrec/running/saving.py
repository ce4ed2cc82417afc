"""Writes a finished run into its folder, file by file, the manifest last.

``model/`` is what the server has and may be given away; ``private/`` is what in a federation stays on the clients'
devices: their state, and who has which items.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedrec.data.interactions import Ids
from fedrec.data.item_table import ItemTable
from fedrec.evaluation.evaluator import Evaluation
from fedrec.federation.result import Result
from fedrec.federation.trainer import is_private, is_secret, is_working
from fedrec.protocol.packed import pack_split
from fedrec.protocol.split import Split
from fedrec.running.files import FORMAT, checksum, write_json, write_tensors
from fedrec.running.per_client import pack

SERVER, CLIENTS = "model/server.safetensors", "private/clients.safetensors"
SPLIT, METRICS = "private/split.safetensors", "per_client.safetensors"
ITEMS, USERS = "model/items.json", "private/users.json"
TITLES = "model/titles.json"
"""Titles of items, where they are known."""
RESULT, MANIFEST = "result.json", "manifest.json"
CONFIG = "config.toml"
"""All options of a run that was begun on the command line, from which it can be repeated."""
FILES = (SERVER, ITEMS, CLIENTS, SPLIT, USERS, METRICS, RESULT)
WITHOUT_MODEL = (METRICS, RESULT)
"""What is left of a run whose model is not kept."""


def save_values(folder: Path, per_client: dict[str, Evaluation]) -> None:
    """Write per-client values; a finished run that was there is none until its result is written."""
    (folder / MANIFEST).unlink(missing_ok=True)
    write_tensors(folder / METRICS, pack(per_client))


def save_model(folder: Path, whole: dict[str, Tensor], split: Split) -> None:
    """Write the model, a trainer's ``whole`` state, and the split."""
    (folder / MANIFEST).unlink(missing_ok=True)
    state = {name: value for name, value in whole.items() if not (is_secret(name) or is_working(name))}
    write_tensors(folder / SERVER, {name: value for name, value in state.items() if not is_private(name)})
    write_tensors(folder / CLIENTS, {name: value for name, value in state.items() if is_private(name)})
    write_tensors(folder / SPLIT, {name: torch.tensor(value) for name, value in pack_split(split).items()})
    for name, ids in ((ITEMS, split.data.item_ids), (USERS, split.data.user_ids)):
        write_json(folder / name, {"format": FORMAT, "ids": ids})
    (folder / TITLES).unlink(missing_ok=True)
    if split.data.about is not None:
        write_json(folder / TITLES, {"format": FORMAT} | pack_items(split.data.about, split.data.item_ids))


def pack_items(about: ItemTable, ids: Ids) -> dict[str, Any]:
    """What is known of these items, as plain values."""
    known = [str(key) for key in ids if about.title(key) is not None]
    return {
        "columns": list(about.columns),
        "titles": {key: about.titles[key] for key in known},
        "values": {key: list(about.values[key]) for key in known if key in about.values},
    }


def save_result(folder: Path, result: Result, files: tuple[str, ...] = FILES) -> None:
    """Write the result, and the manifest of ``files`` that makes the run a finished one."""
    write_json(folder / RESULT, result.model_dump(mode="json"))
    if ITEMS in files and (folder / TITLES).exists():
        files = (*files, TITLES)
    write_json(folder / MANIFEST, {"format": FORMAT, "files": {name: checksum(folder / name) for name in files}})
