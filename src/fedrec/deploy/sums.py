"""How well a site's users are served, as sums over them: all that leaves the site."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedrec.evaluation.evaluator import Evaluation

Names = list[str]


@dataclass(frozen=True, eq=False)
class MetricSums:
    """Sums of metrics [k, g] over the users of every group, and how many users have a value [k, g]."""

    names: Names
    """``part|ranking|metric``, one per row."""
    values: Tensor
    users: Tensor

    def __add__(self, other: MetricSums) -> MetricSums:
        return MetricSums(self.names, self.values + other.values, self.users + other.users)

    def means(self, part: str, group: int = 0) -> dict[str, dict[str, float]]:
        """Mean of every metric of a part by ranking; NaN where nobody has a value."""
        found: dict[str, dict[str, float]] = {"sampled": {}, "full": {}}
        for row, name in enumerate(self.names):
            which, ranking, metric = name.split("|")
            if which == part:
                count = float(self.users[row, group])
                found[ranking][metric] = float(self.values[row, group]) / count if count else float("nan")
        return found


def metric_sums(found: dict[str, Evaluation], groups: Tensor, smallest: int) -> MetricSums:
    """Add up what users have; ``groups`` [g, c] says who is in which, and groups below ``smallest`` are not told."""
    names, rows = [], []
    for part, evaluation in found.items():
        for ranking, values in (("sampled", evaluation.sampled), ("full", evaluation.full)):
            for metric, of_users in values.items():
                names.append(f"{part}|{ranking}|{metric}")
                rows.append(torch.from_numpy(of_users).double())
    value = torch.stack(rows)
    known = ~value.isnan()
    members = groups.double().T
    sums, users = value.nan_to_num() @ members, known.double() @ members
    told = users >= smallest
    return MetricSums(names, sums * told, users * told)
