"""How a server combines what its clients changed: the rules that all go by the name of averaging. All are sums over clients.

For row i of an item table, with S the clients of the round and S_i those that touched it:

- ``sum`` (A): q_i + sum_u delta_i^u; with one full-batch step per client this is centralised gradient descent.
- ``uniform`` (B): the mean of all tables, q_i + sum_u delta_i^u / |S|: rows few clients touch hardly move.
- ``size`` (B): the same with weights n_u / sum n, as FedEM's FedMF.
- ``touched`` (C): q_i + the mean of delta_i^u over S_i.
- ``change`` (D): the mean of q_i^u weighted by the L1 norm of its change, FedFast's ActvAGG.

Parameters that every client trains, such as a scoring network, are averaged with weights n_k / sum n or uniformly (FedAvg).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fedrec.compute import dispatch
from fedrec.compute.cpu import for_clients
from fedrec.federation.payload import RowUpdate, Upload, tensor, touched_rows
from fedrec.federation.total import Total
from fedrec.parts.cpu_rows import add_range

Rule = Literal["sum", "uniform", "size", "touched", "change"]
ChangeNorm = Literal["l1", "l2", "coordinate"]
"""What ``change`` weights a row with: a norm of its change, or each coordinate with its own absolute change."""
NetworkRule = Literal["size", "uniform"]
"""Weights n_k / sum n, or the same weight for everybody."""


def add_rows(total: Total, upload: Upload, name: str, rule: Rule, *, norm: ChangeNorm = "l1") -> None:
    """Add a cohort's weighted row changes as ``name``, and what to divide by as ``name.weight``."""
    part = upload.parts[name]
    if type(part) is RowUpdate and rule != "change" and dispatch.compiled_for(part.values) == "cpu":
        _add_compiled(total, upload, name, part, rule)
        return
    if isinstance(part, Tensor) and rule != "change":
        _add_whole(total, upload, name, part, rule)
        return
    owner, items, values = touched_rows(part)
    n_items = part.n_items if isinstance(part, RowUpdate) else tensor(upload.parts, name).shape[1]
    if rule == "change":
        factor = _change_size(values, norm)
    elif rule == "size":
        factor = upload.weights[owner][:, None]
    else:
        factor = torch.ones_like(values[:, :1])
    total.add_rows(name, n_items, items, values * factor if rule in ("change", "size") else values)
    if rule in ("touched", "change"):
        total.add_rows(f"{name}.weight", n_items, items, factor)
    else:
        total.add(f"{name}.weight", upload.weights.sum() if rule == "size" else len(upload.clients))


def _add_compiled(total: Total, upload: Upload, name: str, part: RowUpdate, rule: Rule) -> None:
    """The same without a copy of the rows; threads share the items."""
    m, d = part.n_items, part.values.shape[2]
    sums = total.table(name, m, d, like=part.values, dtype=torch.float32)
    touches = torch.zeros(m)
    if rule == "touched":
        touches = total.table(f"{name}.weight", m, 1, like=part.values, dtype=torch.float32)
    factors = upload.weights if rule == "size" else torch.ones(len(upload.clients))
    inputs = part.rows, part.counts, part.values.contiguous(), factors, sums, touches.view(-1)
    arrays = [value.numpy() for value in inputs]
    # Early items are often the popular ones, so ranges are cut by how often items are touched, judged by a few clients.
    seen = part.rows[:64][part.valid[:64]].long()
    costs = 1 + torch.bincount(seen, minlength=m) * (len(part.rows) / max(1, min(64, len(part.rows))))
    for_clients(lambda first, last: add_range(first, last, *arrays), costs.numpy(), unit=d)
    if rule != "touched":
        total.add(f"{name}.weight", upload.weights.sum() if rule == "size" else len(upload.clients))


def _add_whole(total: Total, upload: Upload, name: str, changes: Tensor, rule: Rule) -> None:
    """The same of whole tables [c, m, d], in which every row counts as touched."""
    total.add(name, torch.tensordot(upload.weights, changes, dims=1) if rule == "size" else changes.sum(0))
    everybody = len(upload.clients)
    if rule == "touched":
        total.add(f"{name}.weight", changes.new_full((changes.shape[1], 1), everybody))
    else:
        total.add(f"{name}.weight", upload.weights.sum() if rule == "size" else everybody)


def noise_problem(rule: Rule) -> str | None:
    """Why a rule makes no sense of rows with noise, if it does not."""
    if rule != "change":
        return None
    return "its rows are weighted by how much they changed, which noise would decide; set agg to uniform, size or sum"


def noise_notes(rule: Rule) -> tuple[str, ...]:
    """What becomes of a rule where noise lies on every row."""
    if rule != "touched":
        return ()
    return ("noise hides which rows a client touched, so every row is averaged over all participants (agg=uniform)",)


def _change_size(values: Tensor, norm: ChangeNorm) -> Tensor:
    if norm == "coordinate":
        return values.abs()
    return values.abs().sum(1, keepdim=True) if norm == "l1" else values.square().sum(1, keepdim=True).sqrt()


def step_rows(table: Tensor, total: Total, name: str, rule: Rule) -> Tensor:
    """The table [m, d] after a round."""
    if name not in total:
        return table
    if rule == "sum":
        return table + total[name]
    weight = total[f"{name}.weight"].to(table)
    return table + torch.where(weight > 0, total[name] / weight.clamp(min=torch.finfo(weight.dtype).tiny), 0)


def add_mean(total: Total, upload: Upload, name: str, rule: NetworkRule = "size") -> None:
    """Add a cohort's weighted changes of a parameter all clients train, and the weights as ``name.weight``."""
    share = upload.weights if rule == "size" else torch.ones_like(upload.weights)
    total.add(name, torch.tensordot(share, tensor(upload.parts, name), dims=1))
    total.add(f"{name}.weight", share.sum())


def step_mean(start: Tensor, total: Total, name: str) -> Tensor:
    """The parameter after a round: moved by the weighted mean of its changes."""
    return start + total[name] / total[f"{name}.weight"].clamp(min=1) if name in total else start
