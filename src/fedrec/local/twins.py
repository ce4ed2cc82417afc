"""The compiled twins of local problems: one table, whose modules are imported when they are first used.

A twin is called as ``twin(problem, params, samples, schedule, steps)`` with contiguous float32 parameters that the
problem says it ``suits``, trains them in place and returns each client's mean loss over its last epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from torch import Tensor

from fedrec.compute.dispatch import Kind
from fedrec.local.adapters import MergingAdapter
from fedrec.local.factorisation import MatrixFactorisation
from fedrec.local.fit import Params, Schedule, Step
from fedrec.local.linear import AdditiveTables, LinearUnit
from fedrec.local.low_rank import LowRank
from fedrec.local.problem import LocalProblem
from fedrec.sampling.samples import Samples

Twin = Callable[[Any, Params, Samples, Schedule, Sequence[Step]], Tensor]

TWINS: dict[type[LocalProblem], dict[Kind, str]] = {
    MatrixFactorisation: {"cpu": "cpu.factorisation.train", "gpu": "gpu.factorisation.train"},
    MergingAdapter: {"cpu": "cpu.adapter.train", "gpu": "gpu.adapter.train"},
    LinearUnit: {"cpu": "cpu.linear.train_unit"},
    AdditiveTables: {"cpu": "cpu.linear.train_additive"},
    LowRank: {"cpu": "cpu.low_rank.train"},
}
"""Where the twins are, in this package; a subclass may compute something else, so it has none."""
ROW_WEIGHTS: dict[Kind, str] = {"cpu": "cpu.adapter.row_weights", "gpu": "gpu.adapter.row_weights"}
"""The forward pass of merging adapters over whole tables."""


def load(place: str) -> Callable[..., Any]:
    """The function at a place in the tables above."""
    module, name = place.rsplit(".", 1)
    function: Callable[..., Any] = getattr(import_module(f"fedrec.local.{module}"), name)
    return function


def twin_of(problem: LocalProblem, kind: Kind) -> Twin | None:
    """The compiled twin of a problem, if there is one of this kind."""
    place = TWINS.get(type(problem), {}).get(kind)
    return None if place is None else load(place)
