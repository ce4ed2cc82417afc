"""What a study says of published claims: how close its values are, and which gains of one row over another hold."""

from __future__ import annotations

from dataclasses import dataclass

from fedrec.studies.result import RowRecord, StudyResult

CLOSE = 0.03
"""A value at most this far from the published one counts as reproduced."""


@dataclass(frozen=True)
class Gain:
    """A published difference of two rows, and ours by protocol."""

    data: str
    label: str
    over: str
    column: str
    published: float
    ours: dict[str, float]

    def holds(self, protocol: str) -> bool:
        """Whether ours goes the same way."""
        return self.ours.get(protocol, 0.0) * self.published > 0


def groups(study: StudyResult) -> dict[tuple[str, str], list[RowRecord]]:
    """Rows by data set and protocol."""
    found: dict[tuple[str, str], list[RowRecord]] = {}
    for row in study.rows:
        found.setdefault((row.data, row.protocol), []).append(row)
    return found


def order(study: StudyResult) -> list[str]:
    """Protocols, as the study names them, that have rows."""
    return [name for name in study.protocols if any(row.protocol == name for row in study.rows)]


def closeness(rows: list[RowRecord]) -> tuple[int, int, float | None]:
    """Of how many values how many are close to the published ones, and the largest difference."""
    differences = [value.difference for row in rows for value in row.values if value.difference is not None]
    near = sum(abs(difference) <= CLOSE for difference in differences)
    return near, len(differences), max(differences, key=abs, default=None)


def gains(study: StudyResult) -> list[Gain]:
    """Every row with published values against the row it builds on.

    That is the one whose label begins its own ("FedMF" for "FedMF + EM"), else the study's first row with values.
    """
    published: dict[tuple[str, str, str], float] = {}
    ours: dict[tuple[str, str, str], dict[str, float]] = {}
    for row in study.rows:
        for value in row.values:
            place = (row.data, row.label, value.column)
            if value.published is not None:
                published.setdefault(place, value.published)
            if value.mean is not None:
                ours.setdefault(place, {})[row.protocol] = value.mean
    found = []
    for (data, label, column), known in published.items():
        over = _base(label, [other for place, other, c in published if (place, c) == (data, column)])
        if over is None or known == published[data, over, column]:  # no gain was published
            continue
        base, mine = ours.get((data, over, column), {}), ours.get((data, label, column), {})
        differences = {name: mine[name] - base[name] for name in mine if name in base}
        found.append(Gain(data, label, over, column, known - published[data, over, column], differences))
    return found


def _base(label: str, labels: list[str]) -> str | None:
    begun = [other for other in labels if label.startswith(f"{other} ")]
    if begun:
        return max(begun, key=len)
    return labels[0] if labels[0] != label and not any(other.startswith(f"{label} ") for other in labels) else None
