"""How a server combines the row changes of its clients: the four rules that all go by the name of averaging.

For row i, with S the clients of the round and S_i those that touched it:

- ``sum`` (A): q_i + sum_u delta_i^u; with one full-batch step per client this is centralised gradient descent.
- ``uniform`` (B): the mean of all tables, q_i + sum_u delta_i^u / |S|: rows few clients touch hardly move.
- ``size`` (B): the same with weights n_u / sum n, as FedEM's FedMF.
- ``touched`` (C): q_i + the mean of delta_i^u over S_i.
- ``change`` (D): the mean of q_i^u weighted by the L1 norm of its change, FedFast's ActvAGG.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor

from fedrec.federation.payload import RowUpdate, Upload

Rule = Literal["sum", "uniform", "size", "touched", "change"]
ChangeNorm = Literal["l1", "l2", "coordinate"]
"""What ``change`` weights a row with: a norm of its change, or each coordinate with its own absolute change."""


def fold_rows(table: Tensor, uploads: Iterable[Upload], name: str, rule: Rule, *, norm: ChangeNorm = "l1") -> Tensor:
    """The new [m, d] table from uploads of row changes, one pass over the cohorts."""
    total = torch.zeros_like(table)
    weight = torch.zeros_like(table if norm == "coordinate" else table[:, :1])
    for upload in uploads:
        add_rows(total, weight, upload, name, rule, norm=norm)
    return finish_rows(table, total, weight, rule)


def add_rows(total: Tensor, weight: Tensor, upload: Upload, name: str, rule: Rule, *, norm: ChangeNorm = "l1") -> None:
    """Add one cohort's weighted changes to ``total`` [m, d] and what to divide by to ``weight`` [m, 1 or d]."""
    part = upload.parts[name]
    if isinstance(part, RowUpdate):
        valid = part.valid
        owner = valid.nonzero()[:, 0]
        items, values = part.rows[valid].long(), part.values[valid]
    else:  # every row, as after a privacy stage
        assert isinstance(part, Tensor)
        c, m, d = part.shape
        owner = torch.arange(c, device=part.device).repeat_interleave(m)
        items, values = torch.arange(m, device=part.device).repeat(c), part.reshape(c * m, d)
    if rule == "change":
        factor = _change_size(values, norm)
    elif rule == "size":
        factor = upload.weights[owner][:, None]
    else:
        factor = torch.ones_like(values[:, :1])
    total.index_add_(0, items, values * factor if rule in ("change", "size") else values)
    if rule in ("touched", "change"):
        weight.index_add_(0, items, factor)
    else:
        weight += upload.weights.sum() if rule == "size" else len(upload.clients)


def _change_size(values: Tensor, norm: ChangeNorm) -> Tensor:
    if norm == "coordinate":
        return values.abs()
    return values.abs().sum(1, keepdim=True) if norm == "l1" else values.square().sum(1, keepdim=True).sqrt()


def finish_rows(table: Tensor, total: Tensor, weight: Tensor, rule: Rule) -> Tensor:
    """The table after a round."""
    if rule == "sum":
        return table + total
    return table + torch.where(weight > 0, total / weight.clamp(min=torch.finfo(weight.dtype).tiny), 0)
