"""What a run will need, said before it begins: a few clients like the others train for two rounds, and what they took is scaled up."""

from __future__ import annotations

import time
from typing import TypedDict

import numpy as np
import torch

from fedrec.compute.device import resolve_device
from fedrec.compute.memory import available
from fedrec.data.training import Ragged, TrainingView
from fedrec.errors import ConfigError, FedrecError
from fedrec.federation.arrows import Arrows
from fedrec.federation.config import PartialConfig
from fedrec.federation.method import EachMethod
from fedrec.federation.recommender import Recommender
from fedrec.federation.store import stored_type
from fedrec.federation.trainer import Setup, Trainer
from fedrec.protocol.split import Split
from fedrec.running.options import RunOptions

CLIENTS = 128
"""How many train for the estimate."""


class Estimate(TypedDict):
    """Bytes, and rough seconds; null where the sample could not tell."""

    method: str
    clients: int
    items: int
    rounds: int
    private_bytes: int
    """State of all clients, in memory or on disk."""
    server_bytes: int
    checkpoint_bytes: int
    free_bytes: int
    """Memory that is free now."""
    fits: bool
    """Whether the state fits into it, or client state goes to disk."""
    bytes_up_per_round: float | None
    bytes_down_per_round: float | None
    seconds_per_round: float | None
    seconds_per_evaluation: float | None
    seconds: float | None
    """All rounds and evaluations."""


def estimate(method: Recommender, split: Split, options: RunOptions) -> Estimate:
    """Roughly what a run will need; nothing of it begins."""
    if method.of_parts:
        raise ConfigError(
            f"{method.name} trains other methods, and needs what they need; ask for each of them, or train it."
        )
    if not isinstance(method, Arrows):
        raise ConfigError(f"{method.name} is centralised: what it needs cannot be told from a few users; train it.")
    device = resolve_device(options.device)
    view, n = split.training, split.training.n_clients
    chosen = _alike(view.positives.counts)
    few, everybody = _few(view, chosen), method
    if isinstance(method.config, PartialConfig):  # the few all take part
        everybody = type(method)(method.config.model_copy(update={"participation": 1.0}))
    trainer = everybody.trainer(few, Setup(options.seed, device))
    scale = n / len(chosen)
    private = int(trainer.private_bytes * scale)
    server = method.server_bytes(n, view.n_items, private) + _server_bytes(trainer)
    if options.store == "disk-half":  # what is uploaded from there is a copy
        server += method.server_bytes(n, view.n_items, private)
        private = _in_half(trainer, private)
    training, up, down = _rounds(method, trainer, scale)
    evaluation = None if training is None else _evaluation(trainer, len(chosen)) * (options.evaluate_users or n)
    rounds = method.rounds if options.rounds is None else options.rounds
    total = None
    if training is not None and evaluation is not None:
        total = rounds * training + -(-rounds // options.evaluate_every) * evaluation
    free, on_disk = available(device), options.store != "memory"
    return Estimate(
        method=method.name,
        clients=n,
        items=view.n_items,
        rounds=rounds,
        private_bytes=private,
        server_bytes=server,
        checkpoint_bytes=private + server,
        free_bytes=free,
        fits=server + (0 if on_disk else private) < free,
        bytes_up_per_round=up,
        bytes_down_per_round=down,
        seconds_per_round=training,
        seconds_per_evaluation=evaluation,
        seconds=total,
    )


def _alike(counts: np.ndarray) -> np.ndarray:
    """Clients whose numbers of training items are spread as those of all."""
    order = np.argsort(counts, kind="stable")
    places = (np.arange(min(CLIENTS, len(order))) + 0.5) * len(order) / min(CLIENTS, len(order))
    found: np.ndarray = np.sort(order[places.astype(np.int64)])
    return found


def _few(view: TrainingView, chosen: np.ndarray) -> TrainingView:
    """The view of these clients alone, over all items."""

    def part(lists: Ragged) -> Ragged:
        values = [lists[client] for client in chosen.tolist()]
        offsets = np.concatenate([[0], np.cumsum([len(found) for found in values])])
        return Ragged(offsets.astype(np.int64), np.concatenate(values).astype(lists.values.dtype))

    history = None if view.history is None else part(view.history)
    return TrainingView(len(chosen), view.n_items, part(view.positives), part(view.excluded), history)


def _in_half(trainer: Trainer, private: int) -> int:
    """What becomes of so much private state with its item tables in half precision."""
    own = [value for name, value in trainer.state().items() if name.startswith("clients.")]
    full, half = (sum(t.numel() * stored_type(t, kind).itemsize for t in own) for kind in (False, True))
    return int(private * half / max(1, full))


def _server_bytes(trainer: Trainer) -> int:
    shared = {name: value for name, value in trainer.state().items() if name.startswith("server.")}
    return sum(value.numel() * value.element_size() for value in shared.values())


def _rounds(method: Arrows, trainer: Trainer, scale: float) -> tuple[float, float, float] | tuple[None, None, None]:
    """Seconds and bytes (up, down) of a round of all; the first round compiles, the second is measured."""
    try:
        trainer.round(0)
        report = trainer.round(1)
    except FedrecError:  # settings that make no sense of so few clients
        return None, None, None
    share = method.participation * scale
    seconds = dict(report.seconds)
    # A server that compares clients with each other works on pairs of them.
    step = seconds.pop("aggregation", 0.0) * (share * share if isinstance(method, EachMethod) else share)
    return sum(seconds.values()) * share + step, report.bytes_up * share, report.bytes_down * share


def _evaluation(trainer: Trainer, clients: int) -> float:
    """Seconds to score a client and look at its scores."""
    start = time.perf_counter()
    scores = trainer.scores(torch.arange(clients))
    float(scores.max())
    return 2 * (time.perf_counter() - start) / clients
