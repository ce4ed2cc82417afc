"""Runs the cells of a grid in worker processes, several at a time."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fedrec
from fedrec.compute.device import resolve_device
from fedrec.studies import worker
from fedrec.studies.cell import Planned
from fedrec.studies.worker import Job

RETRY_SECONDS = 2.0
"""How long to leave a cell alone that somebody else is running."""
JOBS_ON_CUDA = 4
"""Cells that share a device by default."""

Tell = Callable[[int, dict[str, Any]], None]
"""Told what is heard of a cell, by its number: ``state`` (running and all others), ``round``, ``rounds``, ``why``."""


@dataclass(frozen=True)
class Where:
    """Where cells run."""

    device: str = "auto"
    jobs: int | None = None
    """Cells at a time; None: as many as there are cores for their threads, on CUDA at most four."""
    threads: int = 1
    """CPU threads of a cell; one, so that the numbers do not depend on the machine's cores."""
    data_dir: str | None = None

    def slots(self, cells: int) -> int:
        """Cells at a time."""
        if self.jobs is None:
            cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
            jobs = max(1, cores // self.threads)
            jobs = min(jobs, JOBS_ON_CUDA) if resolve_device(self.device).type == "cuda" else jobs
        else:
            jobs = self.jobs
        return max(1, min(jobs, cells))


class Worker:
    """One worker process, and the thread that talks with it."""

    def __init__(self, threads: int) -> None:
        """Start the process; it waits for a job."""
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        source = str(Path(fedrec.__file__).parents[1])
        path = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
        self.words = tempfile.TemporaryFile()  # noqa: SIM115 (closed in end)
        self.hears = False  # whether it has said that an interruption reaches it
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", worker.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.words,
            text=True,
            start_new_session=True,  # Ctrl-C is for this process, which passes it on
            env=os.environ | dict.fromkeys(names, str(threads)) | {"PYTHONPATH": path},
        )

    def run(self, job: Job, hear: Callable[[dict[str, Any]], None]) -> None:
        """Have a cell run, and pass on what is heard of it; the last thing is its final state."""
        assert self.process.stdin
        assert self.process.stdout
        with suppress(BrokenPipeError):
            self.process.stdin.write(job.model_dump_json() + "\n")
            self.process.stdin.flush()
        for line in self.process.stdout:
            said = json.loads(line)
            if "hears" in said:
                self.hears = True
                continue
            hear(said)
            if "state" in said:
                return
        if self.alive:  # one that is being killed says no more, and looks alive for a moment
            self.kill()
            self.process.wait()
        hear({"state": worker.FAILED, "why": f"the worker process ended: {self._last_words()}"})

    @property
    def alive(self) -> bool:
        """Whether it can run another cell."""
        return self.process.poll() is None

    def interrupt(self) -> None:
        """Ask the cell that runs to stop after its round; a process that does not hear yet has begun nothing and is ended."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGINT if self.hears else signal.SIGKILL)

    def kill(self) -> None:
        """End the process and the cell in it at once."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def end(self) -> None:
        """End the process, which has nothing to do."""
        assert self.process.stdin
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(5.0)
        except subprocess.TimeoutExpired:
            self.kill()
            self.process.wait()
        self.words.close()

    def _last_words(self) -> str:
        self.words.seek(max(0, self.words.seek(0, os.SEEK_END) - 4000))
        lines = self.words.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {self.process.poll()}"


def run_cells(cells: Sequence[Planned], where: Where, tell: Tell) -> bool:
    """Run cells, in the order given as far as there are jobs; False if the user interrupted.

    A cell that somebody else is running is tried again when the others are through, and every few seconds.
    """
    todo, heard = _Todo(len(cells)), queue.Queue[tuple[int, dict[str, Any]]]()
    workers: list[Worker] = []

    def work() -> None:
        mine: Worker | None = None
        while (number := todo.take()) is not None:
            try:
                if mine is None or not mine.alive:
                    mine = Worker(where.threads)
                    workers.append(mine)
                state = _one(mine, number)
            except (OSError, ValueError) as error:  # no process, or one that says what nobody understands
                state = worker.FAILED
                heard.put((number, {"state": state, "why": f"its process cannot be run ({error})"}))
            if state == worker.BUSY:
                todo.later(number)
            else:
                todo.done()

    def _one(mine: Worker, number: int) -> str:
        cell = cells[number]
        if todo.stopped:
            heard.put((number, worker.INTERRUPTED))
            return worker.STOPPED
        if cell.finished:  # by somebody else, since this was planned
            heard.put((number, {"state": worker.FINISHED}))
            return worker.FINISHED
        assert cell.folder is not None
        job = Job(
            cell=cell.cell, folder=cell.folder, data_dir=where.data_dir, device=where.device, threads=where.threads
        )
        heard.put((number, {"state": "running"}))
        states: list[str] = []

        def hear(said: dict[str, Any]) -> None:
            if todo.stopped and not mine.alive:  # it was ended on purpose
                said = worker.INTERRUPTED
            heard.put((number, said))
            states.extend([said["state"]] if "state" in said else [])

        mine.run(job, hear)
        return states[-1]

    threads = [threading.Thread(target=work, daemon=True) for _ in range(where.slots(len(cells)))]
    for thread in threads:
        thread.start()
    asked = 0
    while any(thread.is_alive() for thread in threads) or not heard.empty():
        try:
            tell(*heard.get(timeout=0.2))
        except queue.Empty:
            continue
        except KeyboardInterrupt:
            asked += 1
            todo.stop()
            for each in list(workers):
                each.interrupt()
            if asked > 1:
                for each in list(workers):
                    each.kill()
    for each in workers:
        each.end()
    return not asked


class _Todo:
    """Numbers of cells that nobody has begun, first come first served, and busy ones that wait for their turn."""

    def __init__(self, cells: int) -> None:
        self._ready, self._open = deque((number, 0.0) for number in range(cells)), cells
        self._changed = threading.Condition()
        self.stopped = False
        """Whether nothing more is to be begun."""

    def take(self) -> int | None:
        """The next one; None when there is none left, also none that could come back."""
        with self._changed:
            while self._open and not self.stopped:
                now = time.monotonic()
                for place, (number, due) in enumerate(self._ready):
                    if due <= now:
                        del self._ready[place]
                        return number
                waits = [due - now for _, due in self._ready]
                self._changed.wait(min(waits) if waits else None)
            return None

    def done(self) -> None:
        with self._changed:
            self._open -= 1
            self._changed.notify_all()

    def later(self, number: int) -> None:
        with self._changed:
            self._ready.append((number, time.monotonic() + RETRY_SECONDS))
            self._changed.notify_all()

    def stop(self) -> None:
        with self._changed:
            self.stopped = True
            self._changed.notify_all()
