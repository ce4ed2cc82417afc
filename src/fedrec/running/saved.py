"""Run folders: begin one, go on in one, read a finished one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from fedrec.compute.device import resolve_device
from fedrec.errors import ConfigError, DataError, FedrecError
from fedrec.federation.recommender import Recommender
from fedrec.federation.result import Identity, Result
from fedrec.federation.trainer import Setup
from fedrec.protocol.split import Split
from fedrec.running.files import write_json
from fedrec.running.per_client import unpack
from fedrec.running.run import Run


def open_folder(folder: Path, resume: bool) -> None:
    """Make the run folder; one that holds a run is for resuming it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"the run folder {folder} cannot be made ({error.strerror}); choose another run folder."
        ) from None
    if not resume and any((folder / name).exists() for name in ("checkpoints", "run.json", "result.json")):
        raise ConfigError(f"{folder} already holds a run; resume it or choose another run folder.")


def claim(folder: Path, identity: Identity, resume: bool) -> None:
    """Note in the folder which run it holds, and refuse to resume another one."""
    path = folder / "run.json"
    if resume and path.exists():
        known = _read_object(path)
        for key in ("method", "config_hash", "split_hash", "seed"):
            if known.get(key) != getattr(identity, key):
                raise ConfigError(
                    f"{folder} holds a run with another {key.replace('_', ' ')}; resume it with the same settings or "
                    "choose another run folder."
                )
    write_json(path, identity.model_dump(mode="json"))


def read_result(folder: str | Path) -> Result:
    """The result of a finished run."""
    path = Path(folder) / "result.json"
    if not path.exists():
        hint = (
            "its training has not finished; resume it."
            if (Path(folder) / "run.json").exists()
            else "give the folder a run was trained in."
        )
        raise FedrecError(f"{folder} holds no finished run: {hint}")
    try:
        return Result.model_validate(_read_object(path))
    except ValidationError as error:
        wrong = sorted({str(found["loc"][0]) for found in error.errors() if found["loc"]})
        raise FedrecError(
            f"{path} is not a complete result ({', '.join(wrong[:3])} missing or wrong); train again."
        ) from None


def restore(method: Recommender, split: Split, folder: str | Path, result: Result, device: str = "cpu") -> Run:
    """A saved run with its model, on the split it was trained on."""
    if split.hash != result.split_hash:
        raise DataError(
            f"the data behind {folder} has changed (split hash differs), so its model does not fit; train again."
        )
    trainer = method.trainer(split.training, Setup(result.seed, resolve_device(device)))
    try:
        trainer.load_state(load_file(Path(folder) / "model.safetensors"))
        per_client: dict[str, Tensor] = load_file(Path(folder) / "per_client.safetensors")
    except (OSError, SafetensorError, KeyError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise FedrecError(f"the model in {folder} cannot be loaded ({reason}); train again.") from None
    return Run(method, split, trainer, result, unpack(per_client))


def _read_object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FedrecError(f"{path} cannot be read as JSON ({error}); train again.") from None
    if not isinstance(content, dict):
        raise FedrecError(f"{path} does not hold a JSON object; train again.")
    return content
