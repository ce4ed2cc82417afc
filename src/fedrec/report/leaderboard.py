"""Writes ``docs/leaderboard.md``, its picture and the table of the README from stored results: ``python -m fedrec.report.leaderboard``.

``docs/results/leaderboard/`` holds ``study.json`` files of the study ``leaderboard`` under any names. No number is typed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from fedrec.errors import FedrecError
from fedrec.methods import create
from fedrec.report.scatter import Point, scatter
from fedrec.report.sources import read_study
from fedrec.running.files import write_text
from fedrec.studies.result import RowRecord, StudyResult, TestRecord
from fedrec.studies.study import find

DOCS, README = Path("docs"), Path("README.md")
RESULTS, PAGE, PICTURE = "results/leaderboard", "leaderboard.md", "leaderboard.svg"
QUALITY = "full NDCG@10"
BEGIN, END = "<!-- leaderboard: written by `make leaderboard` -->", "<!-- end of leaderboard -->"
TOP = 8
"""Rows in the README."""


def main(arguments: Sequence[str]) -> None:
    """Write page, picture and the README's table."""
    docs = Path(arguments[0]) if arguments else DOCS
    readme = Path(arguments[1]) if len(arguments) > 1 else README
    study = stored(docs / RESULTS)
    write_text(docs / PAGE, page(study))
    write_text(docs / PICTURE, picture(study))
    write_text(readme, with_top(readme.read_text(encoding="utf-8"), study))
    print(f"{docs / PAGE}, {docs / PICTURE} and {readme} written.")


def stored(folder: Path) -> StudyResult:
    """The results of all data sets, put together; a later file replaces rows of an earlier one, unless it has no result."""
    parts = [read_study(path) for path in sorted(folder.glob("*.json"))]
    if not parts:
        raise FedrecError(f"{folder} holds no results; copy study.json of the study 'leaderboard' there.")
    rows: dict[tuple[str, str], RowRecord] = {}
    for row in (row for part in parts for row in part.rows):
        if row.selected_rounds or (row.data, row.label) not in rows:
            rows[row.data, row.label] = row
    tests = {(test.data, test.label): test for part in parts for test in part.tests if _of_shown(test, part, rows)}
    union = {
        name: list(dict.fromkeys(value for part in parts for value in getattr(part, name)))
        for name in ("data", "seeds")
    }
    union["data"].sort(key=find("leaderboard").data.index)
    return parts[0].model_copy(update={"rows": list(rows.values()), "tests": list(tests.values()), **union})


def _of_shown(test: TestRecord, part: StudyResult, rows: dict[tuple[str, str], RowRecord]) -> bool:
    """Whether both sides of a file's test are what is shown: another file may have replaced either by another run."""
    its = {(row.data, row.label): row for row in part.rows}
    pair = [(test.data, label) for label in (test.label, test.reference)]
    return all(key in its and its[key].values == rows[key].values for key in pair)


def page(study: StudyResult) -> str:
    """The page; equal results give equal text."""
    parts = [
        "# Leaderboard",
        "<!-- Written by `make leaderboard` from docs/results/leaderboard; do not edit. -->",
        f"{study.title}. {study.note}",
        "NDCG@10 and HR@10 against all items come first, then against 99 sampled ones. Clients score with their training items "
        "(`history_at_test=train`). Bytes are of a whole run, all clients together. `p` is Wilcoxon's, after Holm, of the difference in "
        f"{QUALITY} to the row that is best on validation (ref), over the seeds that both have; rows that were run another time have none. ± is the spread over seeds, "
        "which change what is random in a method; a split by time stays nearly the same. Seconds are of a run with its evaluations, often taken beside other work.",
        f"`fedrec reproduce leaderboard` runs it. Rows without a run are named below each table.\n\n![quality against bytes]({PICTURE})",
    ]
    for data in study.data:
        rows = _ranked(study, data)
        if rows:
            parts += [f"## {data}", _table(study, data, rows)]
        lost = [row for row in study.rows if row.data == data and not row.selected_rounds]
        if lost:
            parts.append("Not run: " + ", ".join(sorted(row.label for row in lost)) + ".")
        fewer = {row.label: said for row in rows if (said := _fewer(row))}
        if len(fewer) == len(rows) > 1 == len({*fewer.values()}):
            parts.append(f"All rows: {fewer[rows[0].label]} seeds.")
        elif fewer:
            parts.append("Fewer seeds: " + ", ".join(f"{label} ({said})" for label, said in fewer.items()) + ".")
    absent = [name for name in find("leaderboard").data if name not in study.data]
    if absent:
        parts.append("No results are stored for " + ", ".join(absent) + ".")
    return "\n\n".join(parts) + "\n"


def _fewer(row: RowRecord) -> str:
    """How many seeds have a run, where not all have."""
    done = sum(cell.state == "finished" for cell in row.cells)
    return f"{done} of {len(row.cells)}" if done < len(row.cells) else ""


def _ranked(study: StudyResult, data: str) -> list[RowRecord]:
    """Rows with results, the best first."""
    rows = [row for row in study.rows if row.data == data and value(row, QUALITY) is not None]
    return sorted(rows, key=lambda row: (-(value(row, QUALITY) or 0.0), row.label))


def value(row: RowRecord, column: str) -> float | None:
    """A column's mean."""
    return next((found.mean for found in row.values if found.column == column), None)


def sees(row: RowRecord) -> str:
    """What a server sees of the clients' uploads in the runs of a row."""
    return create(row.method, row.settings, data=row.data).sees


def _table(study: StudyResult, data: str, rows: list[RowRecord]) -> str:
    tests = {test.label: test for test in study.tests if test.data == data}
    reference = next(iter(tests.values())).reference if tests else None
    heads = ["method", "NDCG@10, all", "HR@10, all", "NDCG@10, 99", "HR@10, 99", "difference", "p", "s", "MB up", "MB down", "the server sees", "epsilon"]  # fmt: skip
    lines = []
    for row in rows:
        spread = next((found.spread for found in row.values if found.column == QUALITY), None)
        lines.append(
            [
                row.label,
                _number(value(row, QUALITY), 4) + (f" ± {spread:.4f}" if spread is not None else ""),
                *(_number(value(row, name), 4) for name in ("full HR@10", "NDCG@10", "HR@10")),
                *_tested(tests.get(row.label), row.label == reference),
                _number(row.seconds, 0),
                *(_number(_mega(value(row, name)), 1) for name in ("bytes up", "bytes down")),
                sees(row),
                _number(_epsilon(row), 1),
            ]
        )
    return _markdown(heads, lines)


def _tested(test: TestRecord | None, reference: bool) -> list[str]:
    if reference:
        return ["ref", "ref"]
    if test is None:
        return ["-", "-"]
    return [f"{test.difference:+.4f}", "< 0.001" if test.wilcoxon_holm < 0.001 else f"{test.wilcoxon_holm:.3f}"]


def _epsilon(row: RowRecord) -> float | None:
    own = value(row, "epsilon of the method")
    return own if own is not None else row.epsilon


def _mega(value: float | None) -> float | None:
    return None if value is None else value / 1e6


def picture(study: StudyResult) -> str:
    """Quality against the bytes of a run, a panel per data set; what sends nothing stands at the left edge."""
    panels = {}
    for data in study.data:
        rows = _ranked(study, data)
        points = [
            Point(row.label, sum(value(row, name) or 0.0 for name in ("bytes up", "bytes down")), value(row, QUALITY) or 0.0, sees(row))
            for row in rows
        ]  # fmt: skip
        if points:
            panels[data] = points
    return scatter(panels, "bytes of a whole run, up and down, all clients", "NDCG@10, all items")


def with_top(readme: str, study: StudyResult) -> str:
    """The README with the best rows of the first data set between its two marks."""
    if readme.count(BEGIN) != 1 or readme.count(END) != 1:
        raise FedrecError(f"the README lacks '{BEGIN}' and '{END}', between which its table belongs.")
    data = study.data[0]
    heads = [
        "method",
        "NDCG@10, all items",
        "HR@10, all items",
        "NDCG@10, of 100",
        "HR@10, of 100",
        "MB up + down",
        "the server sees",
    ]
    lines = []
    for row in _ranked(study, data)[:TOP]:
        sent = sum(value(row, name) or 0.0 for name in ("bytes up", "bytes down"))
        found = [_number(value(row, name), 3) for name in (QUALITY, "full HR@10", "NDCG@10", "HR@10")]
        lines.append([row.label, *found, _number(sent / 1e6, 1) if sent else "-", sees(row)])
    seeds = max(len(row.selected_rounds) for row in study.rows if row.data == data)
    words = f"{data}, honest protocol, test at the round chosen on validation; means of up to {seeds} seeds. All rows, data sets, tests: "
    text = f"{BEGIN}\n{words}[docs/leaderboard.md](docs/leaderboard.md).\n\n{_markdown(heads, lines)}\n{END}"
    return re.sub(re.escape(BEGIN) + ".*?" + re.escape(END), lambda _: text, readme, flags=re.DOTALL)


def _markdown(heads: list[str], lines: list[list[str]]) -> str:
    rule = ["---", *("---:" for _ in heads[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in [heads, rule, *lines])


def _number(found: float | None, digits: int) -> str:
    return "-" if found is None else f"{found:,.{digits}f}"


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except FedrecError as error:
        sys.exit(f"error: {error}")
