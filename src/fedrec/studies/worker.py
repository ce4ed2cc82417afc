"""A process that runs cells for a study, one at a time, each in a process forked for it; ``python -m fedrec.studies.worker``.

It reads one JSON object per line (``Job``) and writes one per round and one at the end of a cell. What takes long to import is
imported once, and what a cell leaves in memory goes with its process. Nobody is left behind: a worker ends, and ends
its cell, when the process that feeds it does; a cell ends when its worker does.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, TextIO

from fedrec.errors import FedrecError
from fedrec.settings import Settings
from fedrec.studies.cell import Cell

FINISHED, FAILED, BUSY, STOPPED = "finished", "failed", "busy", "stopped"
INTERRUPTED = {"state": STOPPED, "why": "interrupted"}
KILLED_WITH_PARENT = 1  # PR_SET_PDEATHSIG


class Job(Settings):
    """A cell and where to run it."""

    cell: Cell
    folder: Path
    """Its run folder."""
    data_dir: str | None = None
    """Where data sets lie."""
    device: str = "auto"
    """auto, cpu or cuda."""
    threads: int = 1
    """CPU threads."""
    checkpoint_every: int = 20
    """Rounds between checkpoints."""


def main() -> None:
    """Run what is asked for on stdin, until it ends."""
    reports = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a cell prints is no report
    asked: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: asked.append(number))
    _say(reports, {"hears": "interruptions"})  # before, they are lost where they were ignored when it began
    import fedrec.api  # noqa: F401 (what every cell needs)

    while line := sys.stdin.buffer.readline():
        if asked:
            _say(reports, INTERRUPTED)
            continue
        child = os.fork()
        if child == 0:
            _in_child(Job.model_validate_json(line), reports)
        _attend(child, reports)


def _in_child(job: Job, reports: TextIO) -> NoReturn:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(KILLED_WITH_PARENT, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        found = run(job, reports)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # what comes after its last word is for the next cell
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        found = INTERRUPTED
    _say(reports, found)
    reports.flush()
    os._exit(0)


def _attend(child: int, reports: TextIO) -> None:
    """Wait for a cell; one that ends without a word was killed."""
    feeder = select.poll()
    feeder.register(sys.stdin, 0)  # tells of nothing but the end; the next job may be there already
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            if status:
                code = os.waitstatus_to_exitcode(status)
                how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
                hint = "; was there enough memory?" if code == -signal.SIGKILL else ""
                _say(reports, {"state": FAILED, "why": f"its process was ended {how}{hint}"})
            return
        if feeder.poll(50):
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os._exit(1)


def run(job: Job, reports: TextIO) -> dict[str, Any]:
    """Run a cell, going on where an earlier attempt stopped; returns its state and, where it has no result, why."""
    from fedrec.running.folder import holds_run
    from fedrec.running.lock import InUseError
    from fedrec.running.loop import StoppedError
    from fedrec.running.saved import is_finished

    try:
        _train(job, holds_run(job.folder), reports)
    except InUseError as error:
        return {"state": BUSY, "why": str(error)}
    except (KeyboardInterrupt, StoppedError):
        return INTERRUPTED
    except FedrecError as error:
        if not is_finished(job.folder):  # by somebody else, in the meantime
            return {"state": FAILED, "why": str(error)}
    except Exception as error:  # whatever a method of somebody else does, the grid goes on
        text = str(error).strip().split("\n")[0]
        return {"state": FAILED, "why": f"{type(error).__name__}: {text}" if text else type(error).__name__}
    return {"state": FINISHED}


def _train(job: Job, resume: bool, reports: TextIO) -> None:
    from fedrec.api import train
    from fedrec.data.loading import load_any
    from fedrec.protocol import preset
    from fedrec.running.listeners import Listener, RunStart

    class Report(Listener):
        def start(self, run: RunStart) -> None:
            _say(reports, {"round": len(run.earlier), "rounds": run.rounds})

        def round(self, line: Any) -> None:
            _say(reports, {"round": line["round"]})

    cell = job.cell
    method = cell.make()
    data, source = load_any(cell.data, job.data_dir)
    split = preset(cell.protocol).split(data, cell.seed)
    train(
        method,
        split,
        rounds=cell.rounds,
        seed=cell.seed,
        device=job.device,
        out=job.folder,
        evaluate_every=cell.evaluate_every or method.evaluate_every,
        checkpoint_every=job.checkpoint_every,
        keep_model=cell.keep_model,
        resume=resume,
        progress=False,
        privacy=cell.privacy,
        threads=job.threads,
        source=source,
        listeners=[Report()],
    )


def _say(reports: TextIO, what: dict[str, Any]) -> None:
    reports.write(json.dumps(what) + "\n")


if __name__ == "__main__":
    main()
