"""Fills the numbers into words about studies, so that nobody types one.

A placeholder names a value: ``{{study | data | protocol | row | column}}``, with ``| published``, ``| difference`` or ``| spread``
after it for those, or ``| over ROW`` for the difference to another row. ``{{study | data | protocol | close}}`` and ``| gains`` count.
A paragraph about results that are not stored is left out.
"""

from __future__ import annotations

import re
from pathlib import Path

from fedrec.errors import FedrecError, unknown
from fedrec.report.gains import closeness, gains, groups
from fedrec.studies.result import StudyResult, ValueRecord

PLACE = re.compile(r"\{\{(.*?)\}\}", re.S)
TYPED = re.compile(r"\d[.,]\d|\d\s?%")
KINDS = ("mean", "published", "difference", "spread")


class _NotStoredError(Exception):
    """Of a result that is not there."""


def filled(text: str, studies: dict[str, StudyResult], path: Path) -> str:
    """The words with their numbers."""
    kept = []
    for block in re.split(r"\n\s*\n", text.strip()):
        typed = TYPED.search(PLACE.sub("", block))
        if typed:
            raise FedrecError(
                f"{path} has a number that was typed ('{typed[0]}'); name the value in {{{{ }}}} instead."
            )
        try:
            kept.append(PLACE.sub(lambda match: _value(match[1], studies, path), block))
        except _NotStoredError:
            continue
    return "\n\n".join(kept)


def _value(place: str, studies: dict[str, StudyResult], path: Path) -> str:
    name, *rest = (" ".join(part.split()) for part in place.split("|"))
    if len(rest) not in (3, 4, 5):
        raise FedrecError(
            f"{path}: '{place.strip()}' has {len(rest) + 1} parts; write study | data | protocol | row | column."
        )
    data, protocol, *what = rest
    if name not in studies or (data, protocol) not in groups(studies[name]):
        raise _NotStoredError
    if len(what) == 1:
        return _count(studies[name], data, protocol, what[0])
    row, column, kind = what[0], what[1], what[2] if len(what) == 3 else "mean"
    value = _find(studies[name], data, protocol, row, column)
    if kind.startswith("over "):
        other = _find(studies[name], data, protocol, kind.removeprefix("over "), column)
        return _said(None if value.mean is None or other.mean is None else value.mean - other.mean, "+z.3f")
    if kind not in KINDS:
        raise FedrecError(unknown("kind of value", kind, KINDS))
    return _said(getattr(value, kind), "+z.3f" if kind == "difference" else ".3f")


def _count(study: StudyResult, data: str, protocol: str, what: str) -> str:
    if what == "close":
        near, compared, _ = closeness(groups(study)[data, protocol])
        return f"{near} of {compared}"
    if what == "gains":
        known = [gain for gain in gains(study) if gain.data == data and protocol in gain.ours]
        return f"{sum(gain.holds(protocol) for gain in known)} of {len(known)}"
    raise FedrecError(unknown("count", what, ("close", "gains")))


def _find(study: StudyResult, data: str, protocol: str, label: str, column: str) -> ValueRecord:
    rows = {row.label: row for row in groups(study)[data, protocol]}
    if label not in rows:
        raise FedrecError(unknown(f"row of {study.name}", label, rows))
    values = {value.column: value for value in rows[label].values}
    if column not in values:
        raise FedrecError(unknown(f"column of {study.name}", column, values))
    return values[column]


def _said(value: float | None, form: str) -> str:
    if value is None:
        raise _NotStoredError
    return format(value, form)
