"""What a user calls by name: train a method, load a saved run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedrec import distributed
from fedrec.federation.recommender import Recommender
from fedrec.methods import create, find, rebuild
from fedrec.protocol import HONEST, Split
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
    ``RunOptions``, such as ``rounds=50`` or ``out="runs/mine"``, and win over ``options``; ``source`` says
    where the data is from; ``listeners`` are told of every round. Under ``torchrun`` every process calls this alike; they
    share the clients, and the first one speaks and writes for all.
    """
    if isinstance(method, str):
        # A preset with choices changed has a star after its name; what was tuned for the preset is nearest.
        # With nothing held out nothing could be tuned: what the default protocol found good is taken.
        protocol = HONEST.name if split.protocol.holdout == "nothing" else split.protocol.name.rstrip("*")
        method = create(method, protocol=protocol, data=split.data.name)
    chosen = (options or RunOptions()).changed(**changes)
    peers = distributed.joined(chosen.device)
    if peers is None:
        return training.train(method, split, chosen, source=source, listeners=listeners)
    with peers.ending(chosen.out):
        own = chosen.changed(device=peers.device)
        return training.train(method, split, own, source=source, listeners=listeners, peers=peers)


def load_run(folder: str | Path, *, device: str = "cpu", method: type[Recommender] | str | None = None) -> Run:
    """A finished run from its folder, which holds all it takes: the data it was trained on may be gone.

    ``method`` is the class of a method that is not installed, or its file and class (``./mymethod.py:MyMethod``).
    """
    result = read_result(folder)
    own = find(method) if isinstance(method, str) else method
    return restore(rebuild(result.method, result.config, own), folder, result, device)
