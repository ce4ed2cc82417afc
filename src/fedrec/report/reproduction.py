"""Writes ``docs/reproduction.md`` from stored results of studies: ``python -m fedrec.report.reproduction [FOLDER] [PAGE]``.

The folder holds ``study.json`` files under any names, and ``words.md``: the words on top, with the numbers left to the results.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from fedrec.errors import FedrecError
from fedrec.report.gains import CLOSE, Gain, closeness, gains, groups, order
from fedrec.report.rows import plain
from fedrec.report.sources import read_study
from fedrec.report.words import filled
from fedrec.running.files import write_text
from fedrec.studies import study as declared
from fedrec.studies.result import RowRecord, StudyResult, ValueRecord

RESULTS, PAGE, WORDS = Path("docs/results"), Path("docs/reproduction.md"), "words.md"


def main(arguments: Sequence[str]) -> None:
    """Write the page."""
    folder, page = (Path(given) for given in (list(arguments) + [str(RESULTS), str(PAGE)][len(arguments) :])[:2])
    write_text(page, reproduction(folder))
    print(f"{page} written from {len(list(folder.glob('*.json')))} stored results.")


def reproduction(folder: Path) -> str:
    """The page; equal files give equal text."""
    studies = stored(folder)
    words = filled((folder / WORDS).read_text(encoding="utf-8"), studies, folder / WORDS)
    parts = [
        "# Reproduction",
        "<!-- Written by `make reproduction` from docs/results; edit words.md there, not this page. -->",
        words,
    ]
    if studies:
        parts += ["## Overview", _overview(studies), _not_stored(studies)]
    for study in studies.values():
        parts += _study(study)
    return "\n\n".join(part for part in parts if part) + "\n"


def stored(folder: Path) -> dict[str, StudyResult]:
    """All results by name; parts of one study, such as its data sets, are put together."""
    if not (folder / WORDS).is_file():
        raise FedrecError(f"{folder / WORDS} is missing; give the folder with the stored results and their words.")
    found: dict[str, StudyResult] = {}
    for path in sorted(folder.glob("*.json")):
        part = read_study(path)
        found[part.name] = _together(found[part.name], part, path) if part.name in found else part
    return dict(sorted(found.items()))


def _together(one: StudyResult, other: StudyResult, path: Path) -> StudyResult:
    places = [{(row.data, row.protocol, row.label) for row in study.rows} for study in (one, other)]
    if one.columns != other.columns or places[0] & places[1]:
        raise FedrecError(
            f"{path} does not go with the other results of {one.name}: other columns, or rows that are there already."
        )
    union = {
        name: list(dict.fromkeys([*getattr(one, name), *getattr(other, name)]))
        for name in ("data", "protocols", "seeds")
    }
    return one.model_copy(update={"rows": [*one.rows, *other.rows], "tests": [*one.tests, *other.tests], **union})


def _overview(studies: dict[str, StudyResult]) -> str:
    heads = [
        "study",
        "data",
        "protocol",
        f"within {CLOSE} of the published",
        "largest difference",
        "published gains that hold",
        "runs missing",
    ]
    lines = []
    for name, study in studies.items():
        found = gains(study)
        for (data, protocol), rows in groups(study).items():
            near, compared, largest = closeness(rows)
            here = [gain for gain in found if gain.data == data]
            held = [gain for gain in here if gain.holds(protocol)]
            known = [gain for gain in here if protocol in gain.ours]
            lost = sum(cell.state != "finished" for row in rows for cell in row.cells)
            lines.append(
                [
                    f"[{name}](#{name})", data, _marked(rows[0]), f"{near} of {compared}" if compared else "-",
                    "-" if largest is None else _signed(largest), f"{len(held)} of {len(known)}" if known else "-", str(lost),
                ]
            )  # fmt: skip
    return _table(heads, lines, words=3)


def _not_stored(studies: dict[str, StudyResult]) -> str:
    """Of which papers' studies no result is stored, or none of some data sets and protocols."""
    lines, nothing = [], []
    for name in declared.names():
        known = declared.find(name)
        if not known.paper:
            continue
        if name not in studies:
            nothing.append(name)
            continue
        here = groups(studies[name])
        lost = {one: [p for p in known.protocols if (one, p) not in here] for one in known.data}
        said = [f"{_safe(one)} ({', '.join(map(_safe, without))})" for one, without in lost.items() if without]
        lines += [f"- {name}: without {', '.join(said)}"] if said else []
    lines += [f"- nothing of {', '.join(nothing)}"] if nothing else []
    return "Declared studies, and what of them is not stored here:\n\n" + "\n".join(lines) if lines else ""


def _study(study: StudyResult) -> list[str]:
    parts = [f"## {study.name}", f"{_safe(study.title)}." + (f" {_safe(study.paper)}." if study.paper else "")]
    parts += [_safe(study.note), f"`fedrec reproduce {study.name}`, seeds {', '.join(map(str, study.seeds))}."]
    for (data, _), rows in groups(study).items():
        parts += [f"### {_safe(data)}, {_marked(rows[0])}", _values(study, rows)]
    table = _gains(gains(study), order(study))
    parts += ["### Gains", table] if table else []
    lost = [
        f"- {_safe(row.label)}, {_safe(row.data)}, {_safe(row.protocol)}, seed {cell.seed}: {_safe(cell.why or cell.state)}"
        for row, cell in study.missing
    ]
    parts += ["### Missing runs", "\n".join(lost)] if lost else []
    parts += ["### Hashes", _hashes(study)]
    return parts


def _values(study: StudyResult, rows: list[RowRecord]) -> str:
    published = {column for column in study.columns for row in rows if _value(row, column).published is not None}
    heads = ["row"]
    for column in study.columns:
        heads += [_safe(column), "published", "difference"] if column in published else [_safe(column)]
    heads += ["round", "KB up", "KB down", "epsilon", "s/round", "s"]
    lines = []
    for row in rows:
        chosen = f" ({', '.join(f'{name}={plain(value)}' for name, value in row.chosen.items())})" if row.chosen else ""
        line = [_safe(row.label + chosen)]
        for column in study.columns:
            value = _value(row, column)
            line.append(_number(value.mean) + (f" ± {value.spread:.4f}" if value.spread is not None else ""))
            if column in published:
                line += [_number(value.published), "-" if value.difference is None else _signed(value.difference)]
        rounds = "/".join(map(str, row.selected_rounds)) or "-"
        epsilon = "-" if row.privacy is None else "no guarantee" if row.epsilon is None else f"{row.epsilon:.4g}"
        line += [
            rounds,
            *(_plain(v, 1e3) for v in (row.bytes_up, row.bytes_down)),
            epsilon,
            _plain(row.seconds_per_round, 1, 2),
            _plain(row.seconds, 1, 0),
        ]
        lines.append(line)
    return _table(heads, lines)


def _gains(found: list[Gain], protocols: list[str]) -> str:
    if not found:
        return ""
    lines = []
    for gain in found:
        ours = [
            _signed(gain.ours[name]) + ("" if gain.holds(name) else " (lost)") if name in gain.ours else "-"
            for name in protocols
        ]
        lines.append(
            [_safe(gain.data), _safe(gain.label), _safe(gain.over), _safe(gain.column), _signed(gain.published), *ours]
        )
    return _table(["data", "row", "over", "metric", "published", *(_safe(name) for name in protocols)], lines, words=4)


def _hashes(study: StudyResult) -> str:
    lines = [
        [_safe(row.label), _safe(row.data), _safe(row.protocol), str(cell.seed), f"`{cell.config_hash[:16]}`", f"`{cell.split_hash[:16]}`"]
        for row in study.rows for cell in row.cells if cell.state == "finished"
    ]  # fmt: skip
    made = ", ".join(f"{name} {version}" for name, version in study.versions.items())
    return _table(["row", "data", "protocol", "seed", "configuration", "split"], lines, words=6) + (
        f"\n\nMade with {made}." if made else ""
    )


def _value(row: RowRecord, column: str) -> ValueRecord:
    none = ValueRecord(column=column, mean=None, spread=None, per_seed=[])
    return next((value for value in row.values if value.column == column), none)


def _marked(row: RowRecord) -> str:
    return f"{_safe(row.protocol)}{' (leaks)' if row.leaks else ''}"


def _table(heads: list[str], lines: list[list[str]], words: int = 1) -> str:
    rule = ["---" if n < words else "---:" for n in range(len(heads))]
    return "\n".join(f"| {' | '.join(line)} |" for line in [heads, rule, *lines])


def _safe(words: str) -> str:
    """A name as text of Markdown."""
    for sign, written in (
        ("\\", "\\\\"),
        ("|", "\\|"),
        ("<", "&lt;"),
        ("`", "\\`"),
        ("*", "\\*"),
        ("_", "\\_"),
        ("\n", " "),
    ):
        words = words.replace(sign, written)
    return words


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}" if abs(value) < 100 else f"{value:,.0f}"


def _signed(value: float) -> str:
    return f"{value:+z.4f}"


def _plain(value: float | None, unit: float, digits: int = 1) -> str:
    return "-" if value is None else f"{value / unit:,.{digits}f}"


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except FedrecError as error:
        sys.exit(f"error: {error}")
