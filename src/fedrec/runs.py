"""Saved runs: find the data again, check that it is the same, and load the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedrec.data import Interactions, catalogue, load, read_csv
from fedrec.errors import DataError
from fedrec.federation.run import Run, read_result, restore
from fedrec.methods import rebuild
from fedrec.protocol import Protocol
from fedrec.protocol.given import given_split


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
    interactions = data if data is not None else load_source(result["source"], data_dir)
    protocol, pairs = Protocol(**result["protocol_options"]), result["source"].get("split_file")
    if pairs is None:
        split = protocol.split(interactions, result["split_seed"])
    else:
        split = given_split(interactions, pairs, protocol, result["split_seed"])
    return restore(rebuild(result["method"], result["config"]), split, folder, result, device)
