"""Finished runs in their folders, read back only if every file is as it was written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from fedrec.compute.device import resolve_device
from fedrec.data.interactions import Ids
from fedrec.data.item_table import ItemTable
from fedrec.errors import ConfigError, FedrecError
from fedrec.evaluation.evaluator import Evaluation
from fedrec.federation.recommender import Recommender
from fedrec.federation.result import Result
from fedrec.federation.state_check import StateMismatchError, check_state
from fedrec.federation.trainer import Setup, is_working
from fedrec.protocol.packed import NoSplitError, unpack_split
from fedrec.protocol.split import Split
from fedrec.running.files import checksum, read_object, read_tensors, reason
from fedrec.running.history import RoundLine
from fedrec.running.per_client import unpack
from fedrec.running.run import Run
from fedrec.running.saving import (
    CLIENTS,
    FILES,
    ITEMS,
    MANIFEST,
    METRICS,
    RESULT,
    SERVER,
    SPLIT,
    TITLES,
    USERS,
    WITHOUT_MODEL,
)

ROUNDS = "metrics.jsonl"
_ROUND = TypeAdapter(RoundLine)
LATER = tuple(name for name, field in Result.model_fields.items() if not field.is_required())
"""Keys that a result of an earlier version may lack; their defaults say what was so then."""


def is_finished(folder: Path) -> bool:
    """Whether the folder holds a run that has ended."""
    return (folder / MANIFEST).exists()


def read_result(folder: str | Path) -> Result:
    """The result of a finished run."""
    place = Path(folder)
    _check_finished(place)
    _check(place, (RESULT,))
    content, wrong = read_object(place / RESULT), ["something"]
    try:
        result = Result.model_validate(content)
        plain = result.model_dump(mode="json")
        content = {key: plain[key] for key in LATER} | content
        if plain == content:
            return result
        wrong = [key for key in plain.keys() | content.keys() if plain.get(key, wrong) != content.get(key, wrong)]
    except ConfigError:
        pass
    except ValidationError as error:
        wrong = [str(found["loc"][0]) for found in error.errors() if found["loc"]] or wrong
    names = ", ".join(sorted(set(wrong))[:3])
    raise FedrecError(f"{place / RESULT} is not a complete result ({names} missing or wrong); train again.")


def read_per_client(folder: str | Path) -> dict[str, Evaluation]:
    """Every metric of every client at the selected round of a finished run, by part."""
    place = Path(folder)
    _check_finished(place)
    _check(place, (METRICS,))
    return unpack(read_tensors(place / METRICS))


def read_rounds(folder: str | Path) -> list[RoundLine]:
    """What a run logged of its rounds; nothing where it kept no log."""
    path = Path(folder) / ROUNDS
    if not path.exists():
        return []
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return [_ROUND.validate_python(line) for line in lines]
    except (OSError, ValueError, RecursionError) as error:
        raise FedrecError(f"{path} is damaged ({reason(error)}); train again.") from None


def restore(method: Recommender, folder: str | Path, result: Result, device: str = "cpu") -> Run:
    """A saved run with its model."""
    place = Path(folder)
    if set(_known(place)) == set(WITHOUT_MODEL):
        raise FedrecError(f"{folder} holds results without a model; train again and keep the model.")
    _check(place, FILES)
    split = _read_split(place, result)
    per_client = _read_metrics(place, split)
    trainer = method.trainer(split.training, Setup(result.seed, resolve_device(device)))
    state: dict[str, Tensor] = read_tensors(place / SERVER) | read_tensors(place / CLIENTS)
    try:
        check_state({name: own for name, own in trainer.state().items() if not is_working(name)}, state)
    except StateMismatchError as error:
        raise FedrecError(f"the model in {folder} does not fit its settings ({error}); train again.") from None
    trainer.load_state(state)
    return Run(method, split, trainer, result, per_client)


def _read_split(folder: Path, result: Result) -> Split:
    users, items = _read_ids(folder / USERS), _read_ids(folder / ITEMS)
    arrays = {name: value.numpy() for name, value in read_tensors(folder / SPLIT).items()}
    protocol, seed = result.protocol_options, result.split_seed
    try:
        split = unpack_split(arrays, users, items, protocol, seed=seed, name=result.data, digest=result.split_hash)
    except NoSplitError as error:
        raise FedrecError(f"{folder / SPLIT} is not the split of this run ({error}); train again.") from None
    return replace(split, filtered=result.filtered, data=replace(split.data, about=_read_titles(folder)))


def _read_titles(folder: Path) -> ItemTable | None:
    if TITLES not in _known(folder):
        return None
    _check(folder, (TITLES,))
    return unpack_items(read_object(folder / TITLES), str(folder / TITLES))


def unpack_items(content: dict[str, Any], source: str) -> ItemTable:
    """What ``fedrec.running.saving.pack_items`` made plain."""
    titles, columns, values = content.get("titles"), content.get("columns"), content.get("values")
    if not isinstance(titles, dict) or not isinstance(columns, list) or not isinstance(values, dict):
        raise FedrecError(f"{source} is no table of items; train again.")
    return ItemTable(titles, tuple(columns), {key: tuple(row) for key, row in values.items()}, source)


def _read_metrics(folder: Path, split: Split) -> dict[str, Evaluation]:
    try:
        found = read_tensors(folder / METRICS)
        if all(value.is_floating_point() and value.shape == (split.data.n_users,) for value in found.values()):
            return unpack(found)
    except ValueError:  # names of another form
        pass
    raise FedrecError(f"{folder / METRICS} does not have a value of every metric for every client; train again.")


def _read_ids(path: Path) -> Ids:
    ids: Any = read_object(path).get("ids")
    if isinstance(ids, list) and {type(key) for key in ids} in ({str}, {int}) and len(set(ids)) == len(ids):
        return tuple(ids)
    raise FedrecError(f"{path} is no list of ids; train again.")


def _check_finished(folder: Path) -> None:
    if is_finished(folder):
        return
    if (folder / RESULT).exists():
        read_object(folder / RESULT)  # says so if an older version wrote it
    unfinished = (folder / "run.json").exists()
    hint = "its training has not finished; resume it." if unfinished else "give the folder a run was trained in."
    raise FedrecError(f"{folder} holds no finished run: {hint}")


def _known(folder: Path) -> dict[str, Any]:
    """The checksums of a run's files, by name."""
    known = read_object(folder / MANIFEST).get("files")
    return known if isinstance(known, dict) else {}


def _check(folder: Path, names: tuple[str, ...]) -> None:
    """Whether files are as they were written."""
    known = _known(folder)
    for name in names:
        path = folder / name
        if not path.is_file():
            raise FedrecError(f"{path} is missing; train again.")
        if known.get(name) != checksum(path):
            raise FedrecError(f"{path} is not as it was written (damaged or changed by hand); train again.")
