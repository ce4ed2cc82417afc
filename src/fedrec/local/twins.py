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
from fedrec.local.fit import Params, Schedule, Step
from fedrec.sampling.samples import Samples

Twin = Callable[[Any, Params, Samples, Schedule, Sequence[Step]], Tensor]

TWINS: dict[str, dict[Kind, str]] = {
    "MatrixFactorisation": {"cpu": "cpu.factorisation.train", "gpu": "gpu.factorisation.train"},
    "MergingAdapter": {"cpu": "cpu.adapter.train", "gpu": "gpu.adapter.train"},
    "LinearUnit": {"cpu": "cpu.linear.train_unit"},
    "AdditiveTables": {"cpu": "cpu.linear.train_additive"},
    "LowRank": {"cpu": "cpu.low_rank.train"},
}
"""By the class of the problem, where its twins are in this package; a subclass may compute something else, so it has none."""
ROW_WEIGHTS: dict[Kind, str] = {"cpu": "cpu.adapter.row_weights", "gpu": "gpu.adapter.row_weights"}
"""The forward pass of merging adapters over whole tables."""


def load(path: str) -> Callable[..., Any]:
    """The function at a path in the tables above."""
    module, name = path.rsplit(".", 1)
    function: Callable[..., Any] = getattr(import_module(f"fedrec.local.{module}"), name)
    return function


def twin_of(problem: object, kind: Kind) -> Twin | None:
    """The compiled twin of a local problem, if there is one of this kind."""
    path = TWINS.get(type(problem).__name__, {}).get(kind)
    return None if path is None else load(path)
