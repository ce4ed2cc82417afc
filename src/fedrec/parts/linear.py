"""The linear score unit of PFedRec and FedRAP: a client's score of an item row is ``w . row + b``.

A unit is one flat tensor [c, d + 1], the weights and then the bias; without a bias it is [c, d].
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedrec.federation.task import Task
from fedrec.local.fit import put_rows
from fedrec.local.mlp import FlatMLP
from fedrec.parts.scorers import dot
from fedrec.sampling import streams
from fedrec.sampling.samples import Samples


def init_unit(task: Task, clients: Tensor, dim: int, *, bias: bool = True) -> Tensor:
    """One draw from U(-1/sqrt(d), 1/sqrt(d)) that all clients share, [c, d + 1]."""
    keys = streams.keys(task.seed, streams.Purpose.INIT, 0, torch.zeros(1, dtype=torch.int64))
    unit = FlatMLP((dim, 1)).draw_each(keys)[:, : dim + bias]
    return unit.expand(len(clients), -1).to(task.device)


def unit_logits(unit: Tensor, rows: Tensor) -> Tensor:
    """Scores [c, b] of each client's own ``rows`` [c, b, d], or of the rows [c, m, d] of a whole table."""
    d = rows.shape[2]
    return dot(unit[:, :d], rows) + unit[:, d:].sum(1, keepdim=True)


def tuned_scores(unit: Tensor, table: Tensor, samples: Samples, block: Tensor) -> Tensor:
    """Scores [c, m] of ``table`` [c, m, d] with the touched rows replaced by ``block``, without building that table."""
    scores = unit_logits(unit, table)
    put_rows(scores.unsqueeze(2), samples, unit_logits(unit, block).unsqueeze(2))
    return scores
