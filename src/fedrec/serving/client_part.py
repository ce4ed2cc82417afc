"""The part of a model that belongs to one user: what in a federation is on that user's device and nowhere else."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fedrec.errors import DataError, FedrecError, brief
from fedrec.running.files import write_tensors

HISTORY, TOUCHED = "history", "touched"
_LONGEST = 120


@dataclass(frozen=True, eq=False)
class ClientPart:
    """Items as numbers of the model's catalogue, and private state with a leading axis of one client."""

    history: Tensor
    touched: Tensor
    private: dict[str, Tensor]


def file_name(user: str | int) -> str:
    """The file of a user: the id with odd signs written out, or its hash where that is long."""
    name = quote(str(user), safe="").replace(".", "%2E")
    return (name if len(name) <= _LONGEST else hashlib.sha256(str(user).encode()).hexdigest()) + ".safetensors"


def write_client(folder: Path, user: str | int, part: ClientPart, model: str) -> None:
    """Write the part of one user, for the model with this checksum."""
    tensors = {HISTORY: part.history, TOUCHED: part.touched, **{f"private.{k}": v for k, v in part.private.items()}}
    about = {"about": json.dumps({"user": user, "model": model})}
    write_tensors(folder / file_name(user), {k: v.clone() for k, v in tensors.items()}, about)


def read_client(folder: Path, user: str | int, model: str, n_items: int) -> ClientPart:
    """The part of one user."""
    path = folder / file_name(user)
    if not path.is_file():
        raise DataError(f"no user '{brief(user)}' is known to this model; give a history instead.")
    try:
        with safe_open(path, framework="pt") as file:
            about = json.loads((file.metadata() or {}).get("about", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        history, touched = tensors.pop(HISTORY), tensors.pop(TOUCHED)
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise FedrecError(f"{path} is no client part ({brief(error)}); export it again.") from None
    if about.get("model") != model:
        raise FedrecError(f"{path} belongs to another model; export model and client parts together.")
    if any(len(found) and (int(found.min()) < 0 or int(found.max()) >= n_items) for found in (history, touched)):
        raise FedrecError(f"{path} names items that the model does not have; export it again.")
    return ClientPart(history.long(), touched.long(), {k.removeprefix("private."): v for k, v in tensors.items()})


def part_of(history: list[int], touched: list[int], private: dict[str, Tensor]) -> ClientPart:
    """A part from plain lists."""
    own, known = torch.tensor(history, dtype=torch.int64), torch.tensor(touched, dtype=torch.int64)
    return ClientPart(own, known, private)
