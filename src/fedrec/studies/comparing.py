"""Compares methods on the same splits: one table, with paired tests over users against a reference."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrec.errors import ConfigError, DataError, unknown
from fedrec.federation.config import validated
from fedrec.federation.result import Result
from fedrec.methods import create, find
from fedrec.methods import names as known_methods
from fedrec.methods.own_file import is_own_file
from fedrec.protocol import Protocol, preset
from fedrec.protocol.presets import spelled
from fedrec.running.saved import is_finished, read_result
from fedrec.studies.cell import Cell, Planned
from fedrec.studies.collect import collect, ranking_of
from fedrec.studies.grid import GridRow
from fedrec.studies.paired import paired_tests, selecting_metric
from fedrec.studies.pool import Where
from fedrec.studies.result import StudyResult
from fedrec.studies.runner import OUT, run_grid, wanted_part, write
from fedrec.studies.study import Column, Row, Study, column

Values = NDArray[np.float64]


def compare(
    methods: Sequence[str | Row],
    *,
    data: str | Sequence[str] | None = None,
    protocol: str | None = None,
    seeds: int = 3,
    rounds: int | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    reference: str | None = None,
    metric: str | None = None,
    evaluate_every: int | None = None,
    device: str = "auto",
    jobs: int | None = None,
    threads: int = 1,
    out: str | Path = OUT,
    data_dir: str | None = None,
    progress: bool = True,
) -> StudyResult:
    """Run methods with the same seeds, and test each against ``reference``: by default the best on validation.

    A method is a name, ``label=name`` (to have one twice), a ``Row``, or the folder of a finished run. ``settings`` are
    by label. ``metric`` is what is tested, such as ``full ndcg@10``; by default the one the protocol selects by. ``data`` and
    ``protocol`` are ml-100k and honest unless given, or those of the runs where there are only runs. ``evaluate_every`` is 5
    unless given, and 1 for methods whose rounds are choices (blend).
    """
    for name in methods:
        _check_folder(name)
    rows = [_row(method, settings or {}) for method in methods]
    folders = {row.label: Path(row.method) for row in rows if _is_run(row.method)}
    if rows and len(folders) == len(rows):
        first = read_result(next(iter(folders.values())))
        data, protocol = data or first.source.get("path", first.data), protocol or spelled(first.protocol_options)
    protocol, data = protocol or "honest", data or "ml-100k"
    chosen, names = preset(protocol), (data,) if isinstance(data, str) else tuple(data)
    labels = [row.label for row in rows]
    if reference is not None and reference in methods:  # as the method was given: a folder, a file, or with its label
        reference = labels[list(methods).index(reference)]
    for label in settings or {}:
        if label not in labels or label in folders:
            raise ConfigError(unknown("method of the comparison", label, [x for x in labels if x not in folders]))
    if reference is not None and reference not in labels:
        raise ConfigError(unknown("reference", reference, labels))
    if len(rows) < 2:
        raise ConfigError("a comparison needs two methods or more; add another one.")
    tested = metric or selecting_metric(chosen)
    _check_metric(tested, chosen)
    from_folders = [_of_folder(label, folder, names, protocol, seeds) for label, folder in folders.items()]
    methods_only = [row for row in rows if row.label not in folders]
    for row in methods_only:  # a mistake in one is better known before the others have run
        create(row.method, row.settings, protocol=protocol, data=names[0], merge=row.merge)
    study = _study(rows, names, chosen, protocol, seeds, evaluate_every, tested)
    wanted = wanted_part(study, names, (), None, rounds)
    grid, failures, whole = run_grid(
        study.model_copy(update={"rows": tuple(methods_only)}), wanted, Where(device, jobs, threads, data_dir), Path(out),
        progress=progress,
    )  # fmt: skip
    grid += from_folders
    grid.sort(key=lambda row: labels.index(row.label))
    folder = Path(out) / study.name
    result = collect(study, wanted, grid, failures, folder)
    try:
        tests = [
            test
            for name in names
            for test in paired_tests([r for r in grid if r.data == name], tested, reference, chosen)
        ]
    except DataError:
        write(result, folder)  # what was run is not lost
        raise
    result = result.model_copy(update={"kind": "comparison", "tests": tests})
    write(result, folder)
    if not whole:
        raise KeyboardInterrupt
    return result


def _check_metric(metric: str, protocol: Protocol) -> None:
    ranking, name = ranking_of(metric, bool(protocol.candidates)), metric.rpartition(" ")[2]
    known = protocol.full_metrics if ranking == "full" else protocol.metrics
    if name not in known:
        raise ConfigError(unknown(f"{ranking} metric of '{protocol.name}'", name, known))


def _row(method: str | Row, settings: Mapping[str, Mapping[str, Any]]) -> Row:
    if isinstance(method, Row):
        return method.model_copy(update={"settings": method.settings | dict(settings.get(method.label, {}))})
    if _is_run(method):
        return Row(label=Path(method).name, method=method)
    label, _, name = method.rpartition("=")
    label = label or (find(name).name if is_own_file(name) else name)
    return Row(label=label, method=name, settings=dict(settings.get(label, {})))


def _check_folder(method: str | Row) -> None:
    """Refuse what looks like a run's folder and is none, before others are blamed."""
    if isinstance(method, Row) or _is_run(method) or is_own_file(method):
        return
    if method.rpartition("=")[2] in known_methods():
        return
    if Path(method).is_dir():
        raise ConfigError(f"{method} holds no finished run; resume it, or leave it out.")
    if any(sign in method for sign in filter(None, (os.sep, os.altsep))):
        raise ConfigError(f"{method} does not exist; name the folder of a finished run, or a method.")


def _is_run(name: str) -> bool:
    return is_finished(Path(name))


def _study(
    rows: Sequence[Row],
    data: tuple[str, ...],
    protocol: Protocol,
    called: str,
    seeds: int,
    evaluate_every: int | None,
    tested: str,
) -> Study:
    usual = ["hr@10", "ndcg@10", "full ndcg@10"] if protocol.candidates else ["recall@20", "ndcg@20"]
    if not protocol.candidates:
        tested = tested.removeprefix("full ")
    columns: list[Column] = [column(text) for text in dict.fromkeys([*usual, tested])]
    name = "compare-" + re.sub(r"[^\w.+-]+", "_", "-".join(row.label for row in rows))[:80]
    return validated(
        Study,
        "the comparison",
        {
            "name": name,
            "title": f"{', '.join(row.label for row in rows)} on {', '.join(data)}",
            "note": f"Tests: paired over users on test {tested}, on the mean of each user's values over the seeds.",
            "data": data, "protocols": (called,), "columns": columns, "rows": tuple(rows), "seeds": seeds,
            "evaluate_every": evaluate_every,
        },
    )  # fmt: skip


def _of_folder(label: str, folder: Path, data: Sequence[str], protocol: str, seeds: int) -> GridRow:
    """The row of a run that was made before."""
    result = read_result(folder)
    place = next((name for name in data if name == result.data or _same_file(result, name)), None)
    if place is None or result.protocol_options != preset(protocol):
        raise ConfigError(
            f"{folder} is a run on {result.data} under '{result.protocol}', which is not what is compared; "
            "name its data set and protocol, or leave it out."
        )
    if result.split_seed >= seeds:
        raise ConfigError(
            f"{folder} is a run on the split of seed {result.split_seed}, and seeds 0 to {seeds - 1} are compared; compare "
            f"{result.split_seed + 1} seeds, or leave it out."
        )
    cell = Cell(method=result.method, data=place, protocol=protocol, seed=result.split_seed, rounds=result.rounds)
    known = Planned(cell, label, folder, result.rounds, result.config_hash, result.split_hash)
    return GridRow(Row(label=label, method=result.method), label, place, protocol, {}, [({}, [known])])


def _same_file(result: Result, name: str) -> bool:
    return "path" in result.source and Path(result.source["path"]) == Path(name).resolve()
