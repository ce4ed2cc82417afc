"""What a user calls by name: train a method, load a saved run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedrec.data import Interactions, catalogue, load, read_csv
from fedrec.errors import DataError
from fedrec.federation.recommender import Recommender
from fedrec.methods import create, rebuild
from fedrec.protocol import Split
from fedrec.protocol.given import given_split
from fedrec.running import training
from fedrec.running.listeners import Listener
from fedrec.running.options import RunOptions
from fedrec.running.run import Run
from fedrec.running.saved import read_result, restore


def train(
    method: Recommender | str,
    split: Split,
    options: RunOptions | None = None,
    *,
    source: dict[str, Any] | None = None,
    listeners: Sequence[Listener] = (),
    **changes: Any,
) -> Run:
    """Train a method on the training view of ``split`` and evaluate it under the split's protocol.

    A method given by its name has the settings tuned for the split's protocol and data. ``changes`` are fields of
    ``RunOptions``, such as ``rounds=50`` or ``out="runs/mine"``, and win over ``options``; ``source`` is how to load the
    data again, for ``load_run``; ``listeners`` are told of every round.
    """
    if isinstance(method, str):
        # A preset with choices changed has a star after its name; what was tuned for the preset is nearest.
        method = create(method, protocol=split.protocol.name.rstrip("*"), data=split.data.name)
    return training.train(method, split, options, source=source, listeners=listeners, **changes)


def load_source(source: dict[str, Any], data_dir: str | None = None) -> Interactions:
    """The data set a run was trained on, from its catalogue name or its file."""
    if "path" in source:
        columns = {key: source[key] for key in ("user", "item", "rating", "timestamp") if key in source}
        return read_csv(source["path"], **columns)
    if source["name"] not in catalogue:
        raise DataError(
            f"this run was trained on data of your own ('{source['name']}'); pass it as load_run(..., data=...)."
        )
    return load(source["name"], data_dir=data_dir)


def load_run(
    folder: str | Path, *, data: Interactions | None = None, data_dir: str | None = None, device: str = "cpu"
) -> Run:
    """A finished run from its folder; pass ``data`` if it was trained on a frame of your own."""
    result = read_result(folder)
    interactions = data if data is not None else load_source(result.source, data_dir)
    protocol, pairs = result.protocol_options, result.source.get("split_file")
    if pairs is None:
        split = protocol.split(interactions, result.split_seed)
    else:
        split = given_split(interactions, pairs, protocol, result.split_seed)
    return restore(rebuild(result.method, result.config), split, folder, result, device)
