"""What stands behind a report's numbers: protocols, tests, settings, missing runs, versions and hashes."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from fedrec.report.markup import Cell, folded, pairs, paragraph, table, text
from fedrec.report.rows import Row, Section, plain


def measured(section: Section) -> str:
    """How each data set and protocol was judged."""
    rows = []
    for _, group in section.panels:
        run = next((run for row in group for run in row.runs), None)
        if run is None:
            continue
        r, p = run.result, run.result.protocol_options
        rows.append(
            [
                Cell(f"{r.data}, {r.protocol}"), Cell(f"{r.users:,}"), Cell(f"{r.items:,}"), Cell(p.holdout, "words"),
                Cell("all items" if not r.test.sampled else f"{p.candidates} sampled items and all", "words"),
                Cell(r.selected_on, "words"), Cell("yes, see above" if r.leaks else "no", "words"),
            ]
        )  # fmt: skip
    if not rows:
        return ""
    heads = ["data, protocol", "clients", "items", "held out", "ranked against", "round selected by", "leaks"]
    kinds = ["words", "", "", "words", "words", "words", "words"]
    return table("What was measured", [[Cell(h, k) for h, k in zip(heads, kinds, strict=True)]], [("", rows)])


def tests(section: Section) -> str:
    """Paired tests, where the study has some."""
    if not section.study.tests:
        return ""
    heads = [
        "row",
        "against",
        "data",
        "protocol",
        "metric",
        "users",
        "difference",
        "95 % interval",
        "p (bootstrap)",
        "p (Wilcoxon)",
    ]
    rows = [
        [
            Cell(t.label), Cell(t.reference, "words"), Cell(t.data, "words"), Cell(t.protocol, "words"), Cell(t.metric, "words"), Cell(f"{t.users:,}"),
            Cell(f"{t.difference:+z.4f}"), Cell(f"{t.low:+.4f} to {t.high:+.4f}"), Cell(_p(t.bootstrap_holm)), Cell(_p(t.wilcoxon_holm)),
        ]
        for t in section.study.tests
    ]  # fmt: skip
    kinds = ["words"] * 5 + [""] * 5
    caption = "Paired tests against the reference of each data set, over users; p values are Holm-corrected."
    return table(caption, [[Cell(h, k) for h, k in zip(heads, kinds, strict=True)]], [("", rows)])


def missing(section: Section) -> str:
    """Runs without a result."""
    found = section.study.missing
    if not found:
        return ""
    items = "".join(
        f"<li>{text(row.label)}, {text(row.data)}, {text(row.protocol)}, seed {cell.seed}: {text(cell.why or cell.state)}</li>"
        for row, cell in found
    )
    total = sum(len(row.cells) for row in section.study.rows)
    return folded(f"{len(found)} of {total} runs have no result", f'<ul class="findings">{items}</ul>')


def configuration(section: Section) -> str:
    """All settings of every row, and what its method prints."""
    parts = []
    for row in section.rows:
        settings = _settings(row)
        inside = paragraph(_words(row), "note") + pairs({name: plain(value) for name, value in settings.items()})
        run = row.runs[0] if row.runs else None
        for shown in run.result.tables if run else []:
            heads = [Cell(name, "words" if n == 0 else "") for n, name in enumerate(shown.columns)]
            inside += table(shown.title, [heads], [("", [[Cell(value) for value in line] for line in shown.rows])])
        parts.append(folded(f"{row.name} ({row.record.data}, {row.record.protocol})", inside))
    return "".join(parts)


def versions(section: Section) -> str:
    """What each run is a function of, and where it ran."""
    rows = []
    for row in section.rows:
        known = {run.result.seed: run.result for run in row.runs}
        for cell in row.record.cells:
            result = known.get(cell.seed)
            place = "" if result is None else f"{result.device}, {result.threads} threads, {_versions(result.versions)}"
            rows.append(
                [
                    Cell(row.name), Cell(f"{row.record.data}, {row.record.protocol}", "words"), Cell(str(cell.seed)),
                    _hash(cell.config_hash), _hash(cell.split_hash), Cell(place or _versions(section.study.versions), "words"),
                ]
            )  # fmt: skip
    heads = ["row", "data, protocol", "seed", "configuration", "split", "made with"]
    kinds = ["words", "words", "", "words", "words", "words"]
    return table(
        "Hashes of configuration and split (SHA-256), and versions", [[Cell(h, k) for h, k in zip(heads, kinds, strict=True)]],
        [("", rows)],
    )  # fmt: skip


def _settings(row: Row) -> dict[str, Any]:
    if not row.runs:
        return row.record.settings | row.record.chosen
    result = row.runs[0].result
    source = {
        key: PurePath(str(value)).name if key.endswith(("path", "file")) else value
        for key, value in result.source.items()
    }
    return result.config | {f"data {key}": value for key, value in source.items()}


def _words(row: Row) -> str:
    r = row.record
    parts = [f"Method {r.method}."]
    if row.runs:
        parts.append(f"The server sees of uploads: {row.runs[0].result.sees}.")
    if r.chosen:
        chosen = ", ".join(f"{name}={plain(value)}" for name, value in r.chosen.items())
        parts.append(f"Chosen on validation among {r.tried} combinations: {chosen}.")
    if r.privacy:
        parts.append(f"Privacy: {r.privacy.rstrip('.')}.")
    return " ".join(parts)


def _versions(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _hash(value: str) -> Cell:
    return Cell(f"<code>{text(value)}</code>", "words", html=True)


def _p(value: float) -> str:
    return "< 0.0001" if value < 1e-4 else f"{value:.4f}"
