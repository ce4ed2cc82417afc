"""Who is served and what is shown: results by client sparsity, catalogue coverage, concentration."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from fedrec.errors import ConfigError, DataError


@dataclass(frozen=True)
class GroupMean:
    """Mean of one client group; ``size`` is the number of clients with a value."""

    group: int
    size: int
    mean: float


def sparsity_groups(counts: ArrayLike, groups: int = 5) -> NDArray[np.int64]:
    """Group (1 = sparsest .. ``groups``) of every client, from its number of training items.

    Clients with equal counts are ordered by client number, so group sizes differ by at most one.
    """
    if groups < 1:
        raise ConfigError(f"the number of client groups must be at least 1, not {groups}")
    sizes = np.asarray(counts)
    position = np.empty(len(sizes), np.int64)
    position[np.argsort(sizes, kind="stable")] = np.arange(len(sizes))
    return 1 + position * groups // max(1, len(sizes))


def by_group(values: ArrayLike, groups: ArrayLike) -> list[GroupMean]:
    """Mean of per-client values in each group, in group order; NaN (no held-out item) is left out.

    A group in which no client has a value is not listed.
    """
    value, group = np.asarray(values, np.float64), np.asarray(groups)
    if value.shape != group.shape:
        raise DataError(f"values {value.shape} and groups {group.shape} differ in shape; pass one of each per client")
    known = ~np.isnan(value)
    labels, member = np.unique(group[known], return_inverse=True)
    sizes = np.bincount(member)
    sums = np.bincount(member, weights=value[known])
    return [
        GroupMean(int(label), int(size), float(total / size))
        for label, size, total in zip(labels, sizes, sums, strict=True)
    ]


def coverage(top: Tensor, n_items: int) -> float:
    """Share of all items that appear in at least one client's list ``top`` [c, k]; -1 is padding."""
    return coverage_of(_shown(top, n_items))


def coverage_of(shown: Tensor) -> float:
    """Share of all items that are shown at all, from how often each is, [m]."""
    return float((shown > 0).double().mean())


def gini(top: Tensor, n_items: int) -> float:
    """Gini index of how often each item is shown: 0 if all equally often, near 1 if a few take all places."""
    return gini_of(_shown(top, n_items))


def gini_of(shown: Tensor) -> float:
    """Gini index of how often each item is shown, [m]."""
    shown, n_items = shown.double().sort().values, len(shown)
    total = float(shown.sum())
    if total == 0:
        return 0.0
    weights = 2 * torch.arange(1, n_items + 1, dtype=torch.float64, device=shown.device) - n_items - 1
    return float((weights * shown).sum()) / (n_items * total)


def _shown(top: Tensor, n_items: int) -> Tensor:
    items = top[top >= 0].long()
    if n_items < 1 or (items.numel() and int(items.max()) >= n_items):
        raise DataError(f"the lists name an item beyond the {n_items} items of the data set; pass its full item count")
    return torch.bincount(items, minlength=n_items)
