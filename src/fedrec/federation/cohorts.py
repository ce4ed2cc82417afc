"""Cohorts: clients of like size that train together, so that padding is small and blocks fit the memory at hand."""

from __future__ import annotations

import torch
from torch import Tensor

SAMPLES = {"cpu": 1 << 19, "cuda": 1 << 24}
"""Padded samples in a cohort: on a CPU enough to share a pass over memory, on a GPU enough to fill the device."""
TABLES = {"cpu": 1 << 28, "cuda": 1 << 33}
"""Bytes of whole item tables in a cohort."""


WASTE = {"cpu": 2, "cuda": 16}
"""How many times larger a cohort's largest client may be than its smallest; GPU kernels skip padding, so cohorts are few."""


def size_order(counts: Tensor) -> Tensor:
    """Clients sorted by number of training items, largest first, ties by client number."""
    return torch.sort(counts.cpu(), descending=True, stable=True).indices


def cut(sizes: Tensor, *, samples: int, clients: int, waste: int = 2) -> list[slice]:
    """Cut clients with descending ``sizes`` so that width times clients stays below ``samples`` and sizes are alike."""
    slices, start, n = [], 0, len(sizes)
    width = sizes.tolist()
    while start < n:
        most = min(clients, max(1, samples // max(1, width[start])))
        end = min(n, start + most)
        while end - start > 1 and waste * width[end - 1] < width[start]:
            # Halving finds a fitting end in a few steps; exactness is not needed.
            end = start + max(1, (end - start) // 2)
        slices.append(slice(start, end))
        start = end
    return slices


def cohorts(
    clients: Tensor, counts: Tensor, kinds: Tensor | None, *, samples: int, most: int, waste: int = 2
) -> list[Tensor]:
    """Split ``clients`` into cohorts of one kind each, largest clients first; ``most`` bounds the clients of one."""
    ordered = clients[size_order(counts[clients])]
    if kinds is None:
        groups = [ordered]
    else:
        label = torch.zeros(len(counts), dtype=torch.int64)
        label[clients] = kinds.cpu().long()
        groups = [ordered[label[ordered] == value] for value in torch.unique(label[ordered]).tolist()]
    return [group[part] for group in groups for part in cut(counts[group], samples=samples, clients=most, waste=waste)]
