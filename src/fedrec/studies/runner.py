"""Runs a study: plans its grid, runs the cells that have no result yet, and writes what came of all."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from fedrec.data import catalogue
from fedrec.data.loading import is_file, known_by_name
from fedrec.errors import ConfigError, unknown
from fedrec.protocol import preset
from fedrec.running.files import write_json, write_text, writing
from fedrec.running.lock import InUseError, locked
from fedrec.screen import Screen
from fedrec.studies import worker
from fedrec.studies.collect import Failures, collect
from fedrec.studies.grid import GridRow, Wanted, grid_of
from fedrec.studies.paired import paired_tests, selecting_metric
from fedrec.studies.pool import Where, run_cells
from fedrec.studies.progress import GridProgress
from fedrec.studies.result import StudyResult, TestRecord
from fedrec.studies.study import Study, find
from fedrec.studies.table import markdown

OUT = Path("runs/studies")
CELLS = "cells"


def reproduce(
    study: str | Study,
    *,
    data: Sequence[str] = (),
    protocols: Sequence[str] = (),
    seeds: int | None = None,
    rounds: int | None = None,
    device: str = "auto",
    jobs: int | None = None,
    threads: int = 1,
    out: str | Path = OUT,
    data_dir: str | None = None,
    progress: bool = True,
    run: bool = True,
    rows: Sequence[str] = (),
) -> StudyResult:
    """Run a study (by name, file or as an object) and return its table; finished cells are never run again.

    ``data``, ``protocols``, ``seeds``, ``rounds`` and ``rows`` (by their labels) are those of the study unless given. Without
    ``run`` nothing is trained: the result says what is there.
    """
    known = study if isinstance(study, Study) else find(study)
    wanted = wanted_part(known, data, protocols, seeds, rounds, rows)
    where = Where(device, jobs, threads, data_dir)
    folder = Path(out) / known.name
    grid, failures, whole = run_grid(known, wanted, where, Path(out), progress=progress, run=run)
    result = collect(known, wanted, grid, failures, folder)
    if known.tested:
        result = result.model_copy(update={"tests": _tests(grid, wanted)})
    write(result, folder)
    if not whole:
        raise KeyboardInterrupt
    return result


def _tests(grid: Sequence[GridRow], wanted: Wanted) -> list[TestRecord]:
    """Every row against the best one on validation, by data set and protocol."""
    found = []
    for data, name in product(wanted.data, wanted.protocols):
        rows, protocol = [row for row in grid if (row.data, row.protocol) == (data, name)], preset(name)
        found += paired_tests(rows, selecting_metric(protocol), None, protocol)
    return found


def wanted_part(
    study: Study,
    data: Sequence[str],
    protocols: Sequence[str],
    seeds: int | None,
    rounds: int | None,
    rows: Sequence[str] = (),
) -> Wanted:
    """The part of a study that is asked for, checked."""
    if seeds is not None and seeds < 1:
        raise ConfigError(f"a study needs at least 1 seed, not {seeds}.")
    if rounds is not None and rounds < 0:
        raise ConfigError(f"a run has 0 rounds or more, not {rounds}.")
    for name in protocols:
        preset(name)
    for name in data:
        if not known_by_name(name) and not is_file(name):
            raise ConfigError(unknown("data set", name, catalogue))
    for label in rows:
        if label not in (labels := [row.label for row in study.rows]):
            raise ConfigError(unknown(f"row of {study.name}", label, labels))
    return Wanted(
        tuple(dict.fromkeys(data)) or study.data,
        tuple(dict.fromkeys(protocols)) or study.protocols,
        tuple(range(study.seeds if seeds is None else seeds)),
        rounds,
        tuple(rows),
    )


def run_grid(
    study: Study, wanted: Wanted, where: Where, out: Path, *, progress: bool = True, run: bool = True
) -> tuple[list[GridRow], Failures, bool]:
    """Plan and run; returns the rows, why cells failed, and whether it went on to the end."""
    console = Screen(stderr=True, quiet=not progress)
    if console.is_terminal:
        with console.status("planning") as status:
            rows = grid_of(study, wanted, out / CELLS, where.data_dir, status.update)
    else:
        rows = grid_of(study, wanted, out / CELLS, where.data_dir)
    every = list({cell.folder: cell for row in rows for cell in row.cells if cell.folder is not None}.values())
    todo = [cell for cell in every if not cell.finished]
    failures: Failures = {}
    whole = True
    if run:
        with GridProgress(todo, len(every) - len(todo), console) as shown:

            def hear(number: int, said: dict[str, Any]) -> None:
                shown.hear(number, said)
                if said.get("state") == worker.FAILED:
                    folder = todo[number].folder
                    assert folder is not None
                    failures[folder] = said["why"]

            whole = not todo or run_cells(todo, where, hear)
    return rows, failures, whole


def write(result: StudyResult, folder: Path) -> None:
    """Write the result and its tables; somebody else who writes the same is waited for."""
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    for attempt in range(50):
        try:
            with locked(folder):
                write_json(folder / "study.json", result.model_dump(mode="json"))
                write_text(folder / "table.md", markdown(result))
                write_text(folder / "table.csv", result.to_csv())
                with writing(folder / "table.parquet") as part:
                    pq.write_table(result.to_arrow(), part)
            return
        except InUseError:
            if attempt == 49:
                raise
            time.sleep(0.2)
