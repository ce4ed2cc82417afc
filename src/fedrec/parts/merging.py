"""Merging: how a client combines the item table it downloads with the one it has.

Chen, Zhang, Zhang, Luo, Li, "Breaking the Aggregation Bottleneck in Federated Recommendation: A Personalized
Model Merging Approach", AAAI 2026. ``merged = local + rho * (server - local)``, where rho is 1 (replace), one
constant (static), one number per client (dynamic), one number per row (elastic) or 0 (none).

Dynamic and elastic weights come from a client's adapter, see ``fedrec.local.adapters``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from fedrec.errors import ConfigError, unknown
from fedrec.local.adapters import MergingAdapter, adapter_widths, check_widths

Mode = Literal["replace", "static", "dynamic", "elastic", "none"]
Pool = Literal["items", "row"]


def check_merge(mode: str) -> None:
    """Refuse an unknown mode."""
    if mode not in get_args(Mode):
        raise ConfigError(unknown("merge mode", str(mode), get_args(Mode)))


def check_weight(mode: str, rho: float | None) -> None:
    """Refuse a static weight outside 0..1."""
    if mode == "static" and (rho is None or not 0 <= rho <= 1):
        raise ConfigError(f"static merging got the weight rho = {rho}; set it between 0 and 1.")


def pool_rows(pool: Pool, local: Tensor, server: Tensor) -> tuple[Tensor, Tensor]:
    """Rows [c, N, d] over which dynamic merging averages the adapter: all items, or the mean row alone."""
    if pool not in get_args(Pool):
        raise ConfigError(unknown("adapter pool", pool, get_args(Pool)))
    server = server.expand_as(local)
    return (local, server) if pool == "items" else (local.mean(1, keepdim=True), server.mean(1, keepdim=True))


def merge(
    mode: Mode,
    local: Tensor,
    server: Tensor,
    *,
    theta: Tensor | None = None,
    widths: Sequence[int] | None = None,
    rho: float | None = None,
    pool: Pool = "items",
    out: Tensor | None = None,
) -> Tensor:
    """Merge ``local`` [c, m, d] with ``server`` [c, m, d] or [m, d]; ``out`` may be ``local`` itself.

    ``static`` needs the weight ``rho``; ``dynamic`` and ``elastic`` need adapters ``theta`` of ``widths``.
    """
    check_merge(mode)
    check_weight(mode, rho)
    out = torch.empty_like(local) if out is None else out
    if mode == "none":
        return out.copy_(local)
    if mode == "replace":
        return out.copy_(server)
    if mode == "static":
        return torch.lerp(local, server.expand_as(local), rho or 0.0, out=out)
    weights = adapter_weights(mode, local, server, theta, widths, pool)
    return torch.lerp(local, server.expand_as(local), weights[:, :, None], out=out)


def adapter_weights(
    mode: Mode, local: Tensor, server: Tensor, theta: Tensor | None, widths: Sequence[int] | None, pool: Pool
) -> Tensor:
    """The adapters' weights: elastic ones of every row [c, m], the dynamic one of the whole table [c, 1]."""
    if theta is None:
        raise ConfigError(f"{mode} merging needs the clients' adapters; pass theta.")
    widths = adapter_widths(local.shape[2]) if widths is None else widths
    check_widths(widths, local.shape[2])
    adapter = MergingAdapter(tuple(widths))
    if mode == "dynamic":
        return adapter.table_weights(theta, *pool_rows(pool, local, server)).mean(1, keepdim=True)
    return adapter.table_weights(theta, local, server)
