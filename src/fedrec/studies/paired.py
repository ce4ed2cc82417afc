"""Tests of rows of a study against one of them, paired over users."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedrec.errors import DataError
from fedrec.evaluation import significance
from fedrec.federation.result import Result
from fedrec.protocol import Protocol
from fedrec.running.saved import read_per_client
from fedrec.studies.collect import ranking_of, validation_value
from fedrec.studies.grid import GridRow
from fedrec.studies.result import TestRecord

Values = NDArray[np.float64]


def selecting_metric(protocol: Protocol) -> str:
    """The metric the protocol selects by, as columns name it."""
    return f"{protocol.select_ranking} " * (protocol.select_ranking == "full") + protocol.select_metric


def paired_tests(rows: Sequence[GridRow], metric: str, reference: str | None, protocol: Protocol) -> list[TestRecord]:
    """Every row against the reference, on the seeds both have; Holm's correction is over the rows of one data set."""
    found = {row.label: _finished(row) for row in rows}
    found = {label: runs for label, runs in found.items() if runs}
    if reference is None:
        reference = max(found, key=lambda label: _validation(found[label], protocol), default=None)
    if reference is None or reference not in found:
        return []
    others = [label for label in found if label != reference]
    pairs, common = [], []
    for label in others:
        seeds = [seed for seed in found[reference] if seed in found[label]]
        same = [s for s in seeds if found[label][s][1].split_hash == found[reference][s][1].split_hash]
        if not same:
            raise DataError(f"{label} and {reference} have no split in common; run both on the same data and seeds.")
        common.append(same)
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
            wilcoxon_p=test.wilcoxon_p, wilcoxon_holm=float(rank), seeds=seeds,
        )
        for label, test, boot, rank, seeds in zip(others, single, boots, ranks, common, strict=True)
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
