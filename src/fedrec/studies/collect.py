"""From finished cells to the result of a study."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fedrec.federation.result import Result
from fedrec.protocol import preset
from fedrec.running.build_result import versions
from fedrec.studies.cell import Planned
from fedrec.studies.grid import GridRow, Wanted
from fedrec.studies.result import CellRecord, RowRecord, StudyResult, ValueRecord
from fedrec.studies.study import Column, Study

Failures = dict[Path, str]
"""Why a cell has no result, by its folder."""


def collect(study: Study, wanted: Wanted, rows: Sequence[GridRow], failures: Failures, folder: Path) -> StudyResult:
    """What is known so far; the result will lie in ``folder``."""
    return StudyResult(
        kind="study",
        name=study.name,
        title=study.title,
        paper=study.paper,
        note=study.note,
        columns=[column.title for column in study.columns],
        data=list(wanted.data),
        protocols=list(wanted.protocols),
        seeds=list(wanted.seeds),
        rows=[_record(study, row, failures, folder) for row in rows],
        versions=versions(),
    )


def chosen_option(row: GridRow) -> int:
    """Which combination of settings is best on validation, by the mean over seeds; incomplete ones come last."""
    protocol = preset(row.protocol)

    def value(number: int) -> tuple[int, float]:
        results = [cell.result() for cell in row.options[number][1] if cell.finished]
        found = [validation_value(result, protocol) for result in results if isinstance(result, Result)]
        known = [value for value in found if not math.isnan(value)]
        return len(known), statistics.fmean(known) if known else -math.inf

    if len(row.options) == 1:
        return 0
    return max(range(len(row.options)), key=lambda number: (*value(number), -number))


def validation_value(result: Result, protocol: Any) -> float:
    """The metric that selects, on validation, whatever part the protocol selects its round on."""
    if protocol.select_ranking == "full":
        return result.validation.full[protocol.select_metric]
    return result.validation[protocol.select_metric]


def _record(study: Study, row: GridRow, failures: Failures, folder: Path) -> RowRecord:
    chosen, cells = row.options[chosen_option(row)]
    found = [cell.result() if cell.finished else None for cell in cells]
    results = [result for result in found if isinstance(result, Result)]
    first = row.protocol == study.protocols[0]
    published = row.row.published.get(row.data, ()) if first and not row.sweep else ()
    rounds = [cell.rounds for cell in cells if cell.folder is not None]
    epsilons = [result.privacy.epsilon_total for result in results if result.privacy]
    return RowRecord(
        label=row.label,
        data=row.data,
        protocol=row.protocol,
        leaks=preset(row.protocol).leaks,
        method=row.row.method,
        settings=_settings(row),
        sweep=row.sweep,
        chosen=chosen if results else {},
        rounds=rounds[0] if rounds else None,
        selected_rounds=[result.selected_round for result in results],
        values=[
            _value(column, results, published[place] if place < len(published) else None)
            for place, column in enumerate(study.columns)
        ],
        cells=[_cell(cell, result, failures, folder) for cell, result in zip(cells, found, strict=True)],
        tried=len(row.options),
        seconds=_mean(result.seconds.total for result in results),
        seconds_per_round=_mean(result.seconds.per_round for result in results),
        bytes_up=_mean(result.bytes.up_per_client_round for result in results),
        bytes_down=_mean(result.bytes.down_per_client_round for result in results),
        epsilon=_mean(epsilons),
        privacy=next((result.privacy.verdict for result in results if result.privacy), None),
    )


def _settings(row: GridRow) -> dict[str, Any]:
    settings = row.row.settings | row.row.under.get(row.protocol, {})
    if row.row.merge is not None:
        settings["merge"] = row.row.merge
    if row.row.privacy is not None:
        settings["privacy"] = row.row.privacy.model_dump(mode="json")
    return settings


def _cell(cell: Planned, found: Result | str | None, failures: Failures, folder: Path) -> CellRecord:
    place = "" if cell.folder is None else os.path.relpath(cell.folder, folder)
    why = cell.wrong or (failures.get(cell.folder) if cell.folder else None)
    state = "finished" if isinstance(found, Result) else "failed" if why or found else "missing"
    return CellRecord.model_validate(
        {
            "seed": cell.cell.seed,
            "state": state,
            "folder": place,
            "config_hash": cell.config_hash,
            "split_hash": cell.split_hash,
            "why": None if isinstance(found, Result) else found or why or "not run",
        }
    )


def _value(column: Column, results: Sequence[Result], published: float | None) -> ValueRecord:
    values = [value_of(result, column.value) for result in results]
    known = [value for value in values if value is not None]
    mean = statistics.fmean(known) if known else None
    return ValueRecord(
        column=column.title,
        mean=mean,
        spread=statistics.stdev(known) if len(known) > 1 else None,
        per_seed=values,
        published=published,
        difference=None if mean is None or published is None else mean - published,
    )


def value_of(result: Result, name: str) -> float | None:
    """A test metric (``hr@10`` on sampled candidates where there are any, ``full ndcg@10``), or a path in ``result.json``."""
    test = result.test
    if "." not in name:
        found: Any = getattr(test, ranking_of(name, bool(test.sampled))).get(name.rpartition(" ")[2])
    else:
        found = result.model_dump(mode="json")
        for part in name.split("."):
            found = _step(found, part)
    is_number = isinstance(found, int | float) and not isinstance(found, bool) and math.isfinite(found)
    return float(found) if is_number else None


def ranking_of(name: str, sampled: bool) -> str:
    """Where a metric such as ``full ndcg@10`` stands; one that does not say is of sampled candidates where there are any."""
    return "sampled" if sampled and not name.startswith("full ") else "full"


def _step(value: Any, part: str) -> Any:
    if isinstance(value, dict):
        return value.get(part)
    if isinstance(value, list) and part.isdigit() and int(part) < len(value):
        return value[int(part)]
    return None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
