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
    "factorisation.MatrixFactorisation": {"cpu": "cpu.factorisation.train", "gpu": "gpu.factorisation.train"},
    "adapters.MergingAdapter": {"cpu": "cpu.adapter.train", "gpu": "gpu.adapter.train"},
    "merged.MergedSamples": {"cpu": "cpu.merged.train", "gpu": "gpu.merged.train"},
    "pair_network.PairNetwork": {"cpu": "cpu.merged.train_network", "gpu": "gpu.merged.train_network"},
    "linear.LinearUnit": {"cpu": "cpu.linear.train_unit"},
    "linear.AdditiveTables": {"cpu": "cpu.linear.train_additive"},
    "low_rank.LowRank": {"cpu": "cpu.low_rank.train"},
}
"""By module and class of the problem, where its twins are in this package; a subclass may compute something else: it has none."""
ROW_WEIGHTS: dict[Kind, str] = {"cpu": "cpu.adapter.row_weights", "gpu": "gpu.adapter.row_weights"}
"""The forward pass of merging adapters over whole tables."""


def load(path: str) -> Callable[..., Any]:
    """The function at a path in the tables above."""
    module, name = path.rsplit(".", 1)
    function: Callable[..., Any] = getattr(import_module(f"fedrec.local.{module}"), name)
    return function


def name_of(problem: object) -> str:
    """Module, in this package, and class of a problem."""
    kind = type(problem)
    return f"{kind.__module__.removeprefix('fedrec.local.')}.{kind.__qualname__}"


def twin_of(problem: object, kind: Kind) -> Twin | None:
    """The compiled twin of a local problem, if there is one of this kind."""
    path = TWINS.get(name_of(problem), {}).get(kind)
    return None if path is None else load(path)
