"""A run folder while a run goes on in it: who may use it, where it goes on, and what to do when it cannot be written."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedrec.errors import ConfigError
from fedrec.running import checkpoint
from fedrec.running.claim import Claim, check_same, parse_claim, read_claim, write_claim
from fedrec.running.files import NotWrittenError, read_object, reason
from fedrec.running.lock import locked
from fedrec.running.run_state import RunState
from fedrec.running.saving import MANIFEST, RESULT

CHECKPOINTS, STORE = "checkpoints", "store"


@contextmanager
def opened(folder: Path, resume: bool) -> Iterator[None]:
    """The folder, made if need be and held for this process; one that holds a run is for resuming it."""
    if resume and not holds_run(folder):
        raise ConfigError(f"{folder} holds no run to resume; check its name, or leave resume out to begin a run there.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"the run folder {folder} cannot be made ({reason(error)}); choose another one.") from None
    with _explained(folder), locked(folder):
        if not resume and holds_run(folder):
            raise ConfigError(f"{folder} already holds a run; resume it or choose another run folder.")
        yield


def holds_run(folder: Path) -> bool:
    """Whether a run has begun or ended there."""
    return any((folder / name).exists() for name in (CHECKPOINTS, "run.json", RESULT, MANIFEST))


def claim_folder(folder: Path, wanted: Claim, resume: bool) -> None:
    """Note in the folder which run it holds, or refuse to go on in it with another one."""
    if resume:
        check_claim(folder, wanted)
    write_claim(folder, wanted)


def check_claim(folder: Path, wanted: Claim) -> None:
    """Refuse to go on in a folder with another run than the one it holds."""
    known = known_claim(folder)
    if known is not None:
        check_same(known, wanted, folder)


def known_claim(folder: Path) -> Claim | None:
    """Which run a folder holds; where the note is gone the newest checkpoint knows."""
    known = read_claim(folder)
    if known is None and (found := checkpoint.newest(folder / CHECKPOINTS)) is not None:
        content = read_object(found / "checkpoint.json")["record"]
        known = parse_claim(content.get("claim") if isinstance(content, dict) else None, found)
    return known


def go_on(state: RunState, folder: Path, rounds: int) -> None:
    """Continue from the newest whole checkpoint, if there is one, and note how many rounds are wanted now.

    Of processes that share the clients each reads its part.
    """
    found = checkpoint.newest(folder / CHECKPOINTS)
    if found is not None:
        state.restore(checkpoint.load(found), folder)
    if (done := state.history.rounds) > rounds:
        raise ConfigError(f"{folder} has already finished {done} rounds; resume it with {done} rounds or more.")
    if state.shares.first:
        write_claim(folder, state.claim)


def tidy(folder: Path, keep_checkpoints: bool) -> None:
    """Leave what a finished run is read from: its model is saved, so checkpoints and client state on disk are copies."""
    shutil.rmtree(folder / STORE, ignore_errors=True)
    if not keep_checkpoints:
        shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Says how to go on after something could not be written."""
    try:
        yield
    except NotWrittenError as error:
        found = checkpoint.newest(folder / CHECKPOINTS)
        if found is not None:
            left = f"the checkpoint after round {int(found.name)} is whole: resume the run once there is room"
        elif (folder / "run.json").exists():
            left = "there is no checkpoint yet: resume the run once there is room, and it begins with round 1"
        else:
            left = "train again once there is room, or choose another run folder"
        raise NotWrittenError(f"{error}; {left}.") from None
