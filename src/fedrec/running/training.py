"""Train one method on one split, from the first round (or a checkpoint) to the result."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedrec.compute.device import cpu_threads, resolve_device
from fedrec.errors import ConfigError
from fedrec.federation.privacy import PrivacyStage
from fedrec.federation.recommender import Recommender
from fedrec.federation.result import Identity
from fedrec.federation.trainer import Setup, Trainer
from fedrec.protocol.split import Split
from fedrec.running.build_result import build_result
from fedrec.running.checkpoint import load_newest
from fedrec.running.listeners import CheckpointWriter, Listener, MetricsLog, TensorBoardLog
from fedrec.running.loop import Loop
from fedrec.running.options import RunOptions
from fedrec.running.progress import ProgressDisplay
from fedrec.running.run import Run
from fedrec.running.run_state import RunState
from fedrec.running.saved import claim, open_folder


def train(
    method: Recommender,
    split: Split,
    options: RunOptions | None = None,
    *,
    source: dict[str, Any] | None = None,
    listeners: Sequence[Listener] = (),
    **changes: Any,
) -> Run:
    """Train ``method`` on the training view of ``split`` and evaluate it under the split's protocol.

    ``changes`` are fields of ``RunOptions`` and win over ``options``; ``source`` is how to load the data again, for
    ``load_run``; ``listeners`` are told of every round after the built-in ones.
    """
    chosen = (options or RunOptions()).changed(**changes)
    with cpu_threads(chosen.threads):
        return _train(method, split, chosen, source, listeners)


def _train(
    method: Recommender, split: Split, options: RunOptions, source: dict[str, Any] | None, listeners: Sequence[Listener]
) -> Run:
    start = time.perf_counter()
    folder, device = options.out, resolve_device(options.device)
    rounds = method.rounds if options.rounds is None else options.rounds
    on_disk = options.store == "disk"
    if on_disk and device.type != "cpu":
        raise ConfigError("client state on disk works on the CPU only; use device cpu or store memory.")
    if folder is not None:
        open_folder(folder, options.resume)
    stage = PrivacyStage(options.privacy, options.seed) if options.privacy is not None else None
    setup = Setup(options.seed, device, stage, folder / "store" if folder and on_disk else None)
    trainer = method.trainer(split.training, setup)
    state = RunState.fresh(trainer, split, device)
    loop = Loop(
        state,
        title=f"{method.name} on {split.data.name} ({split.protocol.name})",
        rounds=rounds,
        evaluate_every=options.evaluate_every,
        checkpoint_every=options.checkpoint_every,
        folder=folder,
        listeners=[*_built_in(options, state, _privacy_note(stage, trainer)), *listeners],
    )
    identity = _identity(method, split, options, source)
    if folder is not None:
        claim(folder, identity, options.resume)
        _go_on(state, folder, rounds)
    loop.run()
    best = state.selection.conclude(state.history.rounds)
    privacy = None if stage is None else stage.describe(trainer.most_uploads)
    if best.state is not None:
        trainer.load_state(best.state)
    result = build_result(method, state, best, identity, privacy, device, time.perf_counter() - start)
    run = Run(method, split, trainer, result, best.results)
    if folder is not None:
        run.save(folder)
    return run


def _built_in(options: RunOptions, state: RunState, note: Callable[[], str] | None) -> list[Listener]:
    told: list[Listener] = []
    if options.out is not None:
        told.append(MetricsLog(options.out))
        if options.tensorboard:
            told.append(TensorBoardLog(options.out))
        told.append(CheckpointWriter(state, options.out))
    if options.progress:
        told.append(ProgressDisplay(state.split.protocol, note))
    return told


def _privacy_note(stage: PrivacyStage | None, trainer: Trainer) -> Callable[[], str] | None:
    return None if stage is None else lambda: stage.words(trainer.most_uploads)


def _go_on(state: RunState, folder: Path, rounds: int) -> None:
    """Continue from the newest whole checkpoint, if there is one."""
    saved = load_newest(folder / "checkpoints")
    if saved is not None:
        state.restore(saved, folder)
    if (done := state.history.rounds) > rounds:
        raise ConfigError(f"{folder} has already finished {done} rounds; resume it with {done} rounds or more.")


def _identity(method: Recommender, split: Split, options: RunOptions, source: dict[str, Any] | None) -> Identity:
    config, privacy = method.describe_config(), options.privacy
    text = json.dumps([method.name, config, privacy.model_dump() if privacy else None], sort_keys=True)
    return Identity(
        method=method.name,
        data=split.data.name,
        protocol=split.protocol.name,
        leaks=split.protocol.leaks,
        leak_reasons=list(split.protocol.leak_reasons),
        seed=options.seed,
        config=config,
        config_hash=hashlib.sha256(text.encode()).hexdigest(),
        split_hash=split.hash,
        split_seed=split.seed,
        protocol_options=split.protocol,
        source=source or {"name": split.data.name},
    )
