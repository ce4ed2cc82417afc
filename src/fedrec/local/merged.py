"""A method's own loss on merged rows: what elastic merging trains adapters on, and embeddings through them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedrec.compute.dispatch import Kind
from fedrec.local.adapters import MergingAdapter
from fedrec.local.fit import Batch, Params, Schedule, Step, lookup
from fedrec.local.linear import AdditiveTables, LinearUnit
from fedrec.local.pair_network import PairNetwork
from fedrec.local.problem import LocalProblem
from fedrec.sampling.samples import Samples


@dataclass(frozen=True)
class MergedSamples(LocalProblem):
    """A method's own loss on merged rows, merged sample by sample: they take the place of its ``block``."""

    adapter: MergingAdapter
    problem: LocalProblem
    row_names: Sequence[str] = ()
    """Parameters with a row for each touched one, as the block has."""

    def loss(self, params: Params, batch: Batch) -> Tensor:
        """Each client's mean loss."""
        local, server = lookup(params["local"], batch.slots), lookup(params["server"], batch.slots)
        rows = self.adapter.merged_rows(params, local, server)
        own = torch.arange(rows.shape[1], device=rows.device).expand(len(rows), -1)  # each sample has a row of its own
        rowwise = {name: lookup(params[name], batch.slots) for name in self.row_names}
        return self.problem.loss(params | rowwise | {"block": rows}, replace(batch, slots=own))

    def train(self, params: Params, samples: Samples, schedule: Schedule, steps: Sequence[Step]) -> Tensor:
        """As every problem, once the adapter's widths are known to fit the rows."""
        self.adapter.check(params)
        return super().train(params, samples, schedule, steps)

    def suits(self, kind: Kind, params: Params, steps: Sequence[Step]) -> bool:
        """The twin takes Adam's step on the adapter alone, or that and then the steps the problem's own twin takes."""
        if not steps or steps[0].optimizer != "adam" or not steps[0].is_plain("adapter") or "pool_local" in params:
            return False
        rest = [_on_block(step) for step in steps[1:]]
        return self._known(kind) and (not rest or self.problem.suits(kind, params | {"block": params["local"]}, rest))

    def _known(self, kind: Kind) -> bool:
        """Whether the twin knows the problem and where its rows lie; on a GPU it knows no additive tables."""
        problem, rowwise = self.problem, tuple(self.row_names)
        if not self.adapter.compiles(kind):
            return False
        if type(problem) is PairNetwork:
            return problem.compiles(kind) and not rowwise
        if type(problem) is LinearUnit:
            return not rowwise
        return type(problem) is AdditiveTables and rowwise == ("personal",) and kind == "cpu"


def _on_block(step: Step) -> Step:
    """A step on the own rows as the method had it."""
    rates = {"block" if name == "local" else name: rate for name, rate in step.rates.items()}
    return replace(step, names=tuple(rates), lr=rates)
