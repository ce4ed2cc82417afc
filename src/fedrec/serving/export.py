"""Writes what the server of a federation would have after training, and nothing else, into a folder of its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from fedrec.errors import ConfigError
from fedrec.federation.result import Metrics
from fedrec.federation.simulation import Simulation
from fedrec.running.build_result import versions
from fedrec.running.files import FORMAT, NotWrittenError, reason, write_json, write_tensors
from fedrec.running.run import Run
from fedrec.running.saving import pack_items
from fedrec.serving.client_part import part_of, write_client
from fedrec.serving.model import COUNTS, INFO, ITEMS, MANIFEST, ONNX, SERVER, TITLES, Crossed, ModelInfo, sha256
from fedrec.serving.onnx_graph import write_onnx


def export(run: Run, folder: str | Path, *, counts: bool = True, onnx: bool = False) -> str:
    """Write the model of a run; returns the checksum that its client parts name.

    The folder holds the server's state, ids and titles of items, and what the model is; nobody's private state and nobody's
    rows. ``counts`` adds how many users have had each item, a sum over all of them; ``onnx`` a graph from histories to scores.
    """
    newcomers, data = run.newcomers, run.split.data  # refuses models that are no use without their clients
    with _whole(Path(folder)) as place:
        write_tensors(place / SERVER, newcomers.state)
        write_json(place / ITEMS, {"format": FORMAT, "ids": data.item_ids})
        write_json(place / INFO, info_of(run).model_dump(mode="json"))
        if data.about is not None:
            write_json(place / TITLES, {"format": FORMAT} | pack_items(data.about, data.item_ids))
        if counts:
            positives = run.split.training.positives
            pairs = np.unique(positives.owners * data.n_items + positives.values)
            write_tensors(
                place / COUNTS, {"counts": torch.from_numpy(np.bincount(pairs % data.n_items, minlength=data.n_items))}
            )
        if onnx:
            write_onnx(newcomers, place / ONNX)
        names = sorted(path.name for path in place.iterdir())
        known = {name: sha256(place / name) for name in names}
        write_json(place / MANIFEST, {"format": FORMAT, "sha256": known})
    return known[SERVER]


def export_clients(run: Run, folder: str | Path, model: str, progress: Callable[[int], None] = lambda _: None) -> int:
    """Write the client part of every user into a file of its own, for the model with this checksum; returns how many."""
    trainer, data = run.trainer, run.split.data
    with _whole(Path(folder)) as place:
        users: tuple[str | int, ...] = data.user_ids
        for client, user in enumerate(users):
            private = {}
            if isinstance(trainer, Simulation) and not run.method.folds_in:
                own = trainer.store.at(torch.tensor([client]))
                private = {name: own[name].detach().cpu().clone() for name in trainer.store.tensors}
            history = run.split.training.own_list(client).tolist()
            write_client(place, user, part_of(history, run.split.touched[client].tolist(), private), model)
            progress(1)
    return data.n_users


def info_of(run: Run) -> ModelInfo:
    """What a run's model is."""
    result, method = run.result, run.method
    return ModelInfo(
        method=result.method,
        title=method.title,
        config=result.config,
        data=result.data,
        protocol=result.protocol_options.model_dump(mode="json"),
        seed=result.seed,
        rounds=result.model_round,
        users=run.split.data.n_users,
        items=run.split.data.n_items,
        ordered=run.split.training.history is not None,
        config_hash=result.config_hash,
        split_hash=result.split_hash,
        test=Metrics(sampled=result.test.sampled, full=result.test.full),
        crossed=Crossed(
            private=method.private,
            uploaded=method.uploaded,
            server_keeps=method.server_keeps,
            sees=result.sees,
            up_per_round=result.bytes.up_per_client_round,
            down_per_round=result.bytes.down_per_client_round,
        ),
        versions=versions(),
    )


@contextmanager
def _whole(folder: Path) -> Iterator[Path]:
    """A folder beside the one that is wanted; what stands in it at the end becomes that one in one step."""
    if folder.exists() and (not folder.name or not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is already there; choose another folder, or remove it first.")
    part = folder.with_name(folder.name + ".part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        yield part
        if folder.exists():
            folder.rmdir()
        part.rename(folder)
    except OSError as error:
        raise NotWrittenError(f"{folder} cannot be written ({reason(error)}).") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
