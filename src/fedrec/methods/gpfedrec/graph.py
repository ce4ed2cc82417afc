"""A graph of clients from their item tables, and who passes tables to whom (section 4.2 of GPFedRec).

``similarity`` links like clients, as the paper says (Eq. 3-4); ``distance`` links unlike ones, as its released code
does by treating 1 - cosine as a similarity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from fedrec.errors import ConfigError
from fedrec.parts.tables import inner_products

Kind = Literal["distance", "similarity"]
Rule = Literal["threshold", "topk", "quantile"]


def closeness(tables: Sequence[Tensor], kind: Kind) -> Tensor:
    """Cosine [n, n] of the flattened tables [c, m, d] of all cohorts, or 1 - cosine; the diagonal is exact."""
    products = inner_products([table.flatten(1) for table in tables])
    length = products.diagonal().clamp(min=1e-30).sqrt()
    cosine = products / length[:, None] / length
    return cosine.fill_diagonal_(1) if kind == "similarity" else (1 - cosine).fill_diagonal_(0)


def adjacency(near: Tensor, rule: Rule, *, gamma: float = 1.0, k: int = 10, quantile: float = 0.9) -> Tensor:
    """Weights A [n, n], each row a mean over a client's neighbours; a client without any is its own neighbour.

    ``threshold``: all v with near_uv > gamma * mean of all entries; ``topk``: the k largest; ``quantile``: all v with
    near_uv above that quantile of all entries.
    """
    n = len(near)
    if rule == "topk":
        if k > n:
            raise ConfigError(f"the graph wants k = {k} neighbours, but {n} clients took part; lower k.")
        return torch.zeros_like(near).scatter_(1, near.topk(k, dim=1).indices, 1 / k)
    if rule == "quantile":
        limit = near.flatten().kthvalue(max(1, round(quantile * n * n))).values
    else:
        limit = gamma * near.mean()
    linked = near > limit
    others = linked & ~torch.eye(n, dtype=torch.bool, device=near.device)
    # Clients that are all alike in every respect have no links either, and rightly so.
    if rule == "threshold" and n > 1 and not bool(others.any()) and float(near.fill_diagonal_(0).max()) > 0:
        raise ConfigError(
            f"the graph threshold gamma = {gamma:g} isolates every client; lower gamma or set neighbours=topk."
        )
    return normalised(linked.to(near.dtype))


def normalised(links: Tensor) -> Tensor:
    """Rows divided by their sums; an empty row becomes the client itself."""
    degree = links.sum(1, keepdim=True)
    own = torch.eye(len(links), dtype=links.dtype, device=links.device)
    return torch.where(degree > 0, links / degree.clamp(min=1e-30), own)
