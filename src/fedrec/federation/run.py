"""Train a method on a split, and what comes out: metrics, recommendations, a folder."""

from __future__ import annotations

import hashlib
import json
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from fedrec.errors import ConfigError, DataError, FedrecError
from fedrec.evaluation.evaluator import Evaluation
from fedrec.evaluation.ranking import top_items
from fedrec.federation.files import write_json, write_tensors
from fedrec.federation.loop import Loop, pack, unpack
from fedrec.federation.privacy import Privacy, PrivacyStage
from fedrec.federation.recommender import Recommender
from fedrec.federation.result import build_result
from fedrec.federation.trainer import Setup, Trainer
from fedrec.protocol.split import Split


@dataclass(eq=False)
class Run:
    """A trained method: results, per-client values, and a model that recommends."""

    method: Recommender
    split: Split
    trainer: Trainer
    result: dict[str, Any]
    per_client: dict[str, Evaluation]

    @property
    def test(self) -> dict[str, dict[str, float]]:
        """Test metrics at the selected round, by ranking."""
        metrics: dict[str, dict[str, float]] = self.result["test"]
        return metrics

    def recommend(self, user: str | int, k: int = 10) -> list[tuple[str | int, float]]:
        """The ``k`` best new items for a user, by original ids, with scores; training items are left out."""
        data = self.split.data
        key: str | int = user
        if key not in data.user_index:
            key = int(user) if isinstance(user, str) and re.fullmatch(r"-?[0-9]+", user) else str(user)
        if key not in data.user_index:
            raise DataError(
                f"{data.name} has no user '{user}' after the {self.split.protocol.name} filter; give one of its ids, such as "
                f"'{data.user_ids[0]}'."
            )
        if k < 1:
            raise ConfigError(f"a list of {k} items was asked for; use k of 1 or more.")
        client = data.user_index[key]
        scores = self.trainer.scores(torch.tensor([client])).cpu()
        seen = torch.from_numpy(self.split.training.positives[client].astype(np.int64))
        items = top_items(scores, (torch.zeros_like(seen), seen), k)[0]
        return [(data.item_ids[i], float(scores[0, i])) for i in items[items >= 0].tolist()]

    def save(self, folder: str | Path) -> None:
        """Write result, per-client values and model to a folder; ``load_run`` reads it back."""
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        write_tensors(place / "per_client.safetensors", pack(self.per_client))
        write_tensors(place / "model.safetensors", self.trainer.state())
        write_json(place / "result.json", self.result)


def resolve_device(name: str) -> torch.device:
    """The device of that name; ``auto`` is CUDA where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.split(":")[0] not in ("cpu", "cuda"):
        raise ConfigError(f"unknown device '{name}'; use auto, cpu or cuda.")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError("no CUDA device is available here; use --device cpu.")
    return torch.device(name)


def train(
    method: Recommender,
    split: Split,
    *,
    rounds: int | None = None,
    seed: int = 0,
    device: str = "auto",
    out: str | Path | None = None,
    evaluate_every: int = 1,
    checkpoint_every: int = 0,
    resume: bool = False,
    progress: bool = True,
    privacy: Privacy | None = None,
    store: str = "memory",
    source: dict[str, Any] | None = None,
    tensorboard: bool = False,
) -> Run:
    """Train ``method`` on the training view of ``split`` and evaluate it under the split's protocol.

    ``out`` is the run folder (checkpoints, logs, result); ``store="disk"`` keeps client state in memory-mapped files
    there; ``source`` is how to load the data again, for ``load_run``.
    """
    start = time.perf_counter()
    place = resolve_device(device)
    rounds = method.rounds if rounds is None else rounds
    folder = Path(out) if out is not None else None
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"the run folder {folder} cannot be made ({error.strerror}); choose another --out."
            ) from None
        if not resume and any((folder / name).exists() for name in ("checkpoints", "run.json", "result.json")):
            raise ConfigError(f"{folder} already holds a run; add --resume to continue it or choose another --out.")
    if resume and folder is None:
        raise ConfigError("--resume needs the run folder; give --out.")
    if store not in ("memory", "disk"):
        raise ConfigError(f"unknown store '{store}'; use memory or disk.")
    if not 0 <= seed < 2**63:
        raise ConfigError(f"the seed is {seed}; use a number from 0 to 2**63 - 1.")
    if store == "disk" and place.type != "cpu":
        raise ConfigError("client state on disk works with --device cpu only; drop --store disk.")
    if store == "disk" and folder is None:
        raise ConfigError("keeping client state on disk needs a run folder; give --out.")
    stage = PrivacyStage(privacy, seed) if privacy is not None else None
    setup = Setup(seed, place, stage, folder / "store" if folder and store == "disk" else None)
    trainer = method.trainer(split.training, setup)
    loop = Loop(
        trainer,
        split,
        title=f"{method.name} on {split.data.name} ({split.protocol.name})",
        device=place,
        rounds=rounds,
        evaluate_every=evaluate_every,
        checkpoint_every=checkpoint_every,
        folder=folder,
        progress=progress,
        note=_privacy_note(stage, trainer),
        tensorboard=tensorboard,
    )
    identity = _identity(method, split, seed, stage, source)
    if folder is not None:
        _claim(folder, identity, resume)
        done = loop.resume()
        if done > rounds:
            raise ConfigError(f"{folder} has already finished {done} rounds; resume it with --rounds {done} or more.")
    loop.run()
    if loop.best is None:  # resumed at the end of a run that was never evaluated
        loop.evaluate(loop.history.rounds)
    elif not loop.final:  # resumed after the last round
        loop.measure()
    assert loop.best is not None
    privacy_report = None if stage is None else stage.describe(trainer.most_uploads)
    if loop.best.state is not None:
        trainer.load_state(loop.best.state)
    result = build_result(method, split, loop, identity, privacy_report, place, time.perf_counter() - start)
    run = Run(method, split, trainer, result, loop.best.results)
    if folder is not None:
        run.save(folder)
    return run


def _privacy_note(stage: PrivacyStage | None, trainer: Trainer) -> Any:
    return None if stage is None else lambda rounds: stage.words(trainer.most_uploads)


def _identity(
    method: Recommender, split: Split, seed: int, stage: PrivacyStage | None, source: dict[str, Any] | None
) -> dict[str, Any]:
    """What makes a run this run: two runs with the same identity give the same numbers."""
    config = method.describe_config()
    text = json.dumps([method.name, config, stage.settings.model_dump() if stage else None], sort_keys=True)
    return {
        "method": method.name,
        "data": split.data.name,
        "protocol": split.protocol.name,
        "leaks": split.protocol.leaks,
        "leak_reasons": list(split.protocol.leak_reasons),
        "seed": seed,
        "config": config,
        "config_hash": hashlib.sha256(text.encode()).hexdigest(),
        "split_hash": split.hash,
        "split_seed": split.seed,
        "protocol_options": split.protocol.model_dump(mode="json"),
        "source": source or {"name": split.data.name},
    }


def _claim(folder: Path, identity: dict[str, Any], resume: bool) -> None:
    """Note in the folder which run it holds, and refuse to resume another one."""
    path = folder / "run.json"
    if resume and path.exists():
        known = _read_object(path)
        for key in ("method", "config_hash", "split_hash", "seed"):
            if known.get(key) != identity[key]:
                raise ConfigError(
                    f"{folder} holds a run with another {key.replace('_', ' ')}; resume it with the same settings or use another --out."
                )
    write_json(path, identity)


def read_result(folder: str | Path) -> dict[str, Any]:
    """The result of a finished run."""
    path = Path(folder) / "result.json"
    if not path.exists():
        hint = (
            "its training has not finished; continue it with --resume."
            if (Path(folder) / "run.json").exists()
            else "give the folder that --out named."
        )
        raise FedrecError(f"{folder} holds no finished run: {hint}")
    content = _read_object(path)
    if missing := {"method", "config", "test", "split_hash", "seed", "source", "protocol_options"} - set(content):
        raise FedrecError(f"{path} is not a complete result ({', '.join(sorted(missing))} missing); train again.")
    return content


def _read_object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FedrecError(f"{path} cannot be read as JSON ({error}); train again.") from None
    if not isinstance(content, dict):
        raise FedrecError(f"{path} does not hold a JSON object; train again.")
    return content


def restore(method: Recommender, split: Split, folder: str | Path, result: dict[str, Any], device: str = "cpu") -> Run:
    """A saved run with its model, on the split it was trained on."""
    if split.hash != result["split_hash"]:
        raise DataError(
            f"the data behind {folder} has changed (split hash differs), so its model does not fit; train again."
        )
    trainer = method.trainer(split.training, Setup(result["seed"], resolve_device(device)))
    try:
        trainer.load_state(load_file(Path(folder) / "model.safetensors"))
        per_client: dict[str, Tensor] = load_file(Path(folder) / "per_client.safetensors")
    except (OSError, SafetensorError, KeyError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise FedrecError(f"the model in {folder} cannot be loaded ({reason}); train again.") from None
    return Run(method, split, trainer, result, unpack(per_client))
