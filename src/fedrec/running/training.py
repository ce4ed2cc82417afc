"""Train one method on one split, from the first round (or a checkpoint) to the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from fedrec.compute.device import cpu_threads, resolve_device
from fedrec.errors import ConfigError
from fedrec.federation.arrows import Arrows
from fedrec.federation.central_privacy import CentralPrivacy, calibrated
from fedrec.federation.clients import check_noise
from fedrec.federation.peers import Alone, Peers
from fedrec.federation.recommender import Recommender
from fedrec.federation.shares import Shares
from fedrec.federation.stages import Stage, stage_of
from fedrec.federation.task import Task
from fedrec.federation.trainer import Setup, Trainer
from fedrec.protocol.split import Split
from fedrec.running.build_result import build_result, versions
from fedrec.running.claim import Claim, claim_of, write_claim
from fedrec.running.folder import CHECKPOINTS, STORE, check_claim, go_on, known_claim, opened, tidy
from fedrec.running.listeners import CheckpointWriter, Listener, MetricsLog, TensorBoardLog
from fedrec.running.loop import Loop
from fedrec.running.options import RunOptions
from fedrec.running.progress import ProgressDisplay
from fedrec.running.run import Run
from fedrec.running.run_state import RunState
from fedrec.running.saved import is_finished, read_result, restore
from fedrec.running.saving import FILES, WITHOUT_MODEL, save_model, save_result, save_values


def train(
    method: Recommender,
    split: Split,
    options: RunOptions | None = None,
    *,
    source: dict[str, Any] | None = None,
    listeners: Sequence[Listener] = (),
    peers: Peers | None = None,
    **changes: Any,
) -> Run:
    """Train ``method`` on the training view of ``split`` and evaluate it under the split's protocol.

    ``changes`` are fields of ``RunOptions`` and win over ``options``; ``source`` says where the data is from;
    ``listeners`` are told of every round after the built-in ones. ``peers`` are the processes that share the clients; all
    of them call this alike, and the first one speaks and writes for all.
    """
    chosen = (options or RunOptions()).changed(**changes)
    with cpu_threads(chosen.threads):
        return _train(method, split, chosen, source, listeners, peers or Alone())


def _train(
    method: Recommender,
    split: Split,
    options: RunOptions,
    source: dict[str, Any] | None,
    listeners: Sequence[Listener],
    peers: Peers,
) -> Run:
    device = resolve_device(options.device)
    if options.store != "memory" and device.type != "cpu":
        raise ConfigError("client state on disk works on the CPU only; use device cpu or store memory.")
    if options.out is None:
        options = _calibrated(method, split, options, device)
        return _rounds(method, split, options, device, claim_of(method, split, options, source), listeners, peers)
    folder, first = options.out, peers.rank == 0
    with opened(folder, options.resume) if first else nullcontext():
        peers.gather(torch.zeros(1))  # the others wait until the first one has the folder
        options = _calibrated(method, split, _with_rounds(options), device)
        claim = claim_of(method, split, options, source)
        if options.resume:
            check_claim(folder, claim)
        elif first:
            write_claim(folder, claim)
        if is_finished(folder) and not (folder / CHECKPOINTS).exists():
            return _finished(method, folder, claim, device)
        return _rounds(method, split, options, device, claim, listeners, peers)


def _calibrated(method: Recommender, split: Split, options: RunOptions, device: torch.device) -> RunOptions:
    """The noise on sums that the run's budget asks for; more rounds need more noise, so it is part of what the run is."""
    noise = options.privacy
    if not isinstance(noise, CentralPrivacy) or not isinstance(method, Arrows):
        return options
    check_noise(method, noise)
    counts = torch.from_numpy(split.training.positives.counts)
    task = Task(split.training.n_clients, split.training.n_items, counts, options.seed, device, noised=True)
    rounds = method.rounds if options.rounds is None else options.rounds
    return options.changed(privacy=calibrated(noise, method, task, rounds))


def _with_rounds(options: RunOptions) -> RunOptions:
    """A resumed run has as many rounds as it began with, unless told otherwise."""
    known = known_claim(options.out) if options.resume and options.out and options.rounds is None else None
    return options if known is None else options.changed(rounds=known.rounds)


def _finished(method: Recommender, folder: Path, claim: Claim, device: torch.device) -> Run:
    """A run that has nothing left to do."""
    result = read_result(folder)
    if result.rounds != claim.rounds:
        raise ConfigError(
            f"{folder} holds a finished run of {result.rounds} rounds and no checkpoint to add rounds to; train in another "
            "run folder (keep_checkpoints=True leaves them for later)."
        )
    return restore(method, folder, result, str(device))


def _rounds(
    method: Recommender,
    split: Split,
    options: RunOptions,
    device: torch.device,
    claim: Claim,
    listeners: Sequence[Listener],
    peers: Peers,
) -> Run:
    """Train to the last round, then save the model, and then say what came of it."""
    start, folder, about = time.perf_counter(), options.out if peers.rank == 0 else None, versions()
    shares = Shares(torch.from_numpy(split.training.positives.counts), peers)
    stage = stage_of(options.privacy, options.seed) if options.privacy is not None else None
    on_disk = options.out / STORE / str(peers.rank) if options.out and options.store != "memory" else None
    trainer = method.trainer(
        split.training, Setup(options.seed, device, stage, on_disk, half=options.store == "disk-half", shares=shares)
    )
    state = RunState.fresh(claim, trainer, split, device, shares, start)
    told = [*_built_in(options, state, _privacy_note(stage, trainer, state), _privacy_notes(method)), *listeners]
    if not shares.first:
        told = [CheckpointWriter(state, None)]
    title = f"{method.name} on {split.data.name} ({split.protocol.name})"
    if options.out is not None and options.resume:
        go_on(state, options.out, claim.rounds)
    Loop(state, options, claim.rounds, title, told, agreed=lambda flag: shares.most(flag) > 0).run()
    best = state.selection.conclude(state.history.rounds)
    notes, done = _privacy_notes(method), state.history.rounds
    privacy = None if stage is None else stage.describe(trainer.most_uploads, notes, rounds=done)
    if best.state is not None:
        trainer.load_state(best.state)
    if folder is not None:
        save_values(folder, best.results)
    if options.out is not None and options.keep_model:
        whole = shares.whole(trainer.state())
        if folder is not None:
            save_model(folder, whole, split)
    result = build_result(method, state, best, privacy, device, about)
    if folder is not None:
        save_result(folder, result, FILES if options.keep_model else WITHOUT_MODEL)
        tidy(folder, options.keep_checkpoints)
    return Run(method, split, trainer, result, best.results)


def _built_in(
    options: RunOptions, state: RunState, note: Callable[[], str] | None, remarks: tuple[str, ...]
) -> list[Listener]:
    told: list[Listener] = []
    if options.out is not None:
        told.append(MetricsLog(options.out))
        if options.tensorboard:
            told.append(TensorBoardLog(options.out))
        told.append(CheckpointWriter(state, options.out))
    if options.progress:
        told.append(ProgressDisplay(state.split.protocol, note, remarks=() if note is None else remarks))
    return told


def _privacy_notes(method: Recommender) -> tuple[str, ...]:
    return method.privacy_notes() if isinstance(method, Arrows) else ()


def _privacy_note(stage: Stage | None, trainer: Trainer, state: RunState) -> Callable[[], str] | None:
    return None if stage is None else lambda: stage.words(trainer.most_uploads, state.history.rounds)
