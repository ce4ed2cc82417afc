"""Compares methods on the same splits: one table, with paired tests over users against a reference."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrec.errors import ConfigError, DataError, unknown
from fedrec.evaluation import significance
from fedrec.federation.config import validated
from fedrec.federation.result import Result
from fedrec.methods import create, find
from fedrec.methods.own_file import is_own_file
from fedrec.protocol import Protocol, preset
from fedrec.running.saved import is_finished, read_per_client, read_result
from fedrec.studies.cell import Cell, Planned
from fedrec.studies.collect import collect, ranking_of, validation_value
from fedrec.studies.grid import GridRow
from fedrec.studies.pool import Where
from fedrec.studies.result import StudyResult, TestRecord
from fedrec.studies.runner import OUT, run_grid, wanted_part, write
from fedrec.studies.study import Column, Row, Study, column

Values = NDArray[np.float64]


def compare(
    methods: Sequence[str | Row],
    *,
    data: str | Sequence[str] = "ml-100k",
    protocol: str = "honest",
    seeds: int = 3,
    rounds: int | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    reference: str | None = None,
    metric: str | None = None,
    evaluate_every: int = 5,
    device: str = "auto",
    jobs: int | None = None,
    threads: int = 1,
    out: str | Path = OUT,
    data_dir: str | None = None,
    progress: bool = True,
) -> StudyResult:
    """Run methods with the same seeds, and test each against ``reference``: by default the best on validation.

    A method is a name, ``label=name`` (to have one twice), a ``Row``, or the folder of a finished run. ``settings`` are
    by label. ``metric`` is what is tested, such as ``full ndcg@10``; by default the one the protocol selects by.
    """
    chosen = preset(protocol)
    names = (data,) if isinstance(data, str) else tuple(data)
    rows = [_row(method, settings or {}) for method in methods]
    folders = {row.label: Path(row.method) for row in rows if _is_run(row.method)}
    labels = [row.label for row in rows]
    for label in settings or {}:
        if label not in labels or label in folders:
            raise ConfigError(unknown("method of the comparison", label, [x for x in labels if x not in folders]))
    if reference is not None and reference not in labels:
        raise ConfigError(unknown("reference", reference, labels))
    if len(rows) < 2:
        raise ConfigError("a comparison needs two methods or more; add another one.")
    tested = metric or (f"{chosen.select_ranking} " * (chosen.select_ranking == "full") + chosen.select_metric)
    _check_metric(tested, chosen)
    from_folders = [_of_folder(label, folder, names, chosen, seeds) for label, folder in folders.items()]
    methods_only = [row for row in rows if row.label not in folders]
    for row in methods_only:  # a mistake in one is better known before the others have run
        create(row.method, row.settings, protocol=protocol, data=names[0], merge=row.merge)
    study = _study(rows, names, chosen, seeds, evaluate_every, tested)
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
            test for name in names for test in _tests([r for r in grid if r.data == name], tested, reference, chosen)
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


def _is_run(name: str) -> bool:
    return is_finished(Path(name))


def _study(
    rows: Sequence[Row], data: tuple[str, ...], protocol: Protocol, seeds: int, evaluate_every: int, tested: str
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
            "data": data, "protocols": (protocol.name,), "columns": columns, "rows": tuple(rows), "seeds": seeds,
            "evaluate_every": evaluate_every,
        },
    )  # fmt: skip


def _of_folder(label: str, folder: Path, data: Sequence[str], protocol: Protocol, seeds: int) -> GridRow:
    """The row of a run that was made before."""
    result = read_result(folder)
    place = next((name for name in data if name == result.data or _same_file(result, name)), None)
    if place is None or result.protocol_options != protocol:
        raise ConfigError(
            f"{folder} is a run on {result.data} under '{result.protocol}', which is not what is compared; "
            "name its data set and protocol, or leave it out."
        )
    if result.split_seed >= seeds:
        raise ConfigError(
            f"{folder} is a run on the split of seed {result.split_seed}, and seeds 0 to {seeds - 1} are compared; compare "
            f"{result.split_seed + 1} seeds, or leave it out."
        )
    cell = Cell(method=result.method, data=place, protocol=protocol.name, seed=result.split_seed, rounds=result.rounds)
    known = Planned(cell, label, folder, result.rounds, result.config_hash, result.split_hash)
    return GridRow(Row(label=label, method=result.method), label, place, protocol.name, {}, [({}, [known])])


def _same_file(result: Result, name: str) -> bool:
    return "path" in result.source and Path(result.source["path"]) == Path(name).resolve()


def _tests(rows: Sequence[GridRow], metric: str, reference: str | None, protocol: Protocol) -> list[TestRecord]:
    """Every row against the reference, on the seeds both have; Holm's correction is over the rows of one data set."""
    found = {row.label: _finished(row) for row in rows}
    found = {label: runs for label, runs in found.items() if runs}
    if reference is None:
        reference = max(found, key=lambda label: _validation(found[label], protocol), default=None)
    if reference is None or reference not in found:
        return []
    others = [label for label in found if label != reference]
    pairs = []
    for label in others:
        seeds = [seed for seed in found[reference] if seed in found[label]]
        same = [s for s in seeds if found[label][s][1].split_hash == found[reference][s][1].split_hash]
        if not same:
            raise DataError(f"{label} and {reference} have no split in common; run both on the same data and seeds.")
        both = [_users([found[name][seed][0] for seed in same], metric) for name in (label, reference)]
        known = ~np.isnan(both[0]) & ~np.isnan(both[1])
        pairs.append((both[0][known], both[1][known]))
    single = [significance.compare({"a": a, "b": b}, baseline="b")[0] for a, b in pairs]
    boots, ranks = (significance.holm(getattr(test, p) for test in single) for p in ("bootstrap_p", "wilcoxon_p"))
    return [
        TestRecord(
            data=rows[0].data, protocol=protocol.name, metric=metric, label=label, reference=reference, users=test.users,
            difference=test.difference, low=test.low, high=test.high,
            bootstrap_p=test.bootstrap_p, bootstrap_holm=float(boot),
            wilcoxon_p=test.wilcoxon_p, wilcoxon_holm=float(rank),
        )
        for label, test, boot, rank in zip(others, single, boots, ranks, strict=True)
    ]  # fmt: skip


def _finished(row: GridRow) -> dict[int, tuple[Path, Result]]:
    """Folder and result of every finished cell, by seed."""
    runs = {}
    for cell in row.cells:
        result = cell.result() if cell.finished else None
        if isinstance(result, Result) and cell.folder is not None:
            runs[cell.cell.seed] = (cell.folder, result)
    return runs


def _validation(runs: Mapping[int, tuple[Path, Result]], protocol: Protocol) -> float:
    mean = statistics.fmean(validation_value(result, protocol) for _, result in runs.values())
    return -math.inf if math.isnan(mean) else mean


def _users(folders: Sequence[Path], metric: str) -> Values:
    """The mean over runs of each user's value; NaN where a user has none in one of them."""
    values = []
    for folder in folders:
        test = read_per_client(folder)["test"]
        known = getattr(test, ranking_of(metric, bool(test.sampled)))
        values.append(known[metric.rpartition(" ")[2]])
    mean: Values = np.stack(values).mean(axis=0)
    return mean
