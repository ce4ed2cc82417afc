"""A study's result as tables for people: the same cells in Markdown and in a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fedrec.studies.result import RowRecord, StudyResult, TestRecord, ValueRecord


@dataclass(frozen=True)
class Section:
    """The table of one data set under one protocol."""

    title: str
    leaks: bool
    columns: list[str]
    rows: list[list[str]]


def sections(study: StudyResult) -> Iterator[Section]:
    """One table per data set and protocol, and one of its tests where there are any."""
    for data in study.data:
        for protocol in study.protocols:
            rows = [row for row in study.rows if (row.data, row.protocol) == (data, protocol)]
            if rows:
                yield _section(study, rows)
            tests = [test for test in study.tests if (test.data, test.protocol) == (data, protocol)]
            if tests:
                yield _tests(tests, study.seeds)


def _section(study: StudyResult, rows: list[RowRecord]) -> Section:
    first = rows[0]
    given = [any(row.values[n].published is not None for row in rows) for n in range(len(study.columns))]
    private = any(row.privacy is not None for row in rows)
    chosen = any(row.chosen for row in rows)
    columns = ["row"]
    for title, has in zip(study.columns, given, strict=True):
        columns += [title, "published", "difference"] if has else [title]
    columns += ["chosen"] * chosen + ["round", "s", "KB up", "KB down"] + ["epsilon"] * private
    lines = []
    for row in rows:
        line = [row.label]
        for value, has in zip(row.values, given, strict=True):
            line += [_value(value)] + ([_number(value.published), _signed(value.difference)] if has else [])
        if chosen:
            line.append(" ".join(f"{name}={value}" for name, value in row.chosen.items()))
        line += [_rounds(row), _plain(row.seconds, 1), _kilo(row.bytes_up), _kilo(row.bytes_down)]
        if private:
            line.append("" if row.privacy is None else "no guarantee" if row.epsilon is None else f"{row.epsilon:.4g}")
        lines.append(line)
    leaks = ", LEAKS: the test set helps to train or to choose" if first.leaks else ""
    return Section(f"{first.data}, protocol {first.protocol}{leaks}", first.leaks, columns, lines)


def missing(study: StudyResult) -> list[str]:
    """Every cell without a result, and why."""
    return [
        f"{row.label} on {row.data} ({row.protocol}), seed {cell.seed}: {cell.state}: {cell.why}"
        for row, cell in study.missing
    ]


def markdown(study: StudyResult) -> str:
    """All tables as Markdown."""
    lines = [f"# {study.title}", ""]
    lines += [text for given in (study.paper, study.note) if given for text in (given, "")]
    seeds = len(study.seeds)
    lines += [f"{'One seed' if seeds == 1 else f'Mean ± standard deviation over {seeds} seeds'}.", ""]
    for section in sections(study):
        lines += [f"## {section.title}", ""]
        lines += [_line(section.columns), _line(["---"] + ["---:"] * (len(section.columns) - 1))]
        lines += [*(_line(row) for row in section.rows), ""]
    if gaps := missing(study):
        lines += ["## Cells without a result", "", *(f"- {gap}" for gap in gaps), ""]
    return "\n".join(lines)


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _value(value: ValueRecord) -> str:
    if value.mean is None:
        return "-"
    text = _number(value.mean)
    return text if value.spread is None else f"{text} ± {_number(value.spread)}"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if abs(value) < 100 else f"{value:,.0f}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+z.4f}" if abs(value) < 100 else f"{value:+,.0f}"


def _plain(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _kilo(value: float | None) -> str:
    return "-" if value is None else f"{value / 1e3:,.1f}"


def _rounds(row: RowRecord) -> str:
    if not row.selected_rounds:
        return "-"
    return ", ".join(map(str, row.selected_rounds)) + f" of {row.rounds}"


def _chance(p: float) -> str:
    return f"{p:.4f}" if p >= 0.0001 else "< 0.0001"


def _tests(tests: list[TestRecord], seeds: list[int]) -> Section:
    """With the seeds a test is paired over, where one has fewer than there are."""
    first = tests[0]
    columns = ["row", "difference", "95 % interval", "bootstrap p", "Holm", "Wilcoxon p", "Holm", "users"]
    fewer = any(test.seeds and set(test.seeds) < set(seeds) for test in tests)
    columns += ["seeds"] * fewer
    lines = [
        [
            test.label, _signed(test.difference), f"[{test.low:+.4f}, {test.high:+.4f}]",
            *(_chance(p) for p in (test.bootstrap_p, test.bootstrap_holm, test.wilcoxon_p, test.wilcoxon_holm)),
            str(test.users), *[", ".join(map(str, test.seeds))] * fewer,
        ]
        for test in tests
    ]  # fmt: skip
    title = f"{first.data}, test {first.metric}: difference to {first.reference}, paired over users"
    return Section(title, False, columns, lines)
