"""Relation-based ensemble self-distillation between item tables of different size (RESKD of HeteFedRec).

The relations (cosines or distances) between a few items are computed in every table; their mean is the target that
each table is moved towards. No data and no predictor is involved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fedrec.methods.hetefedrec.config import Relation
from fedrec.sampling import streams


def relations(rows: Tensor, kind: Relation) -> Tensor:
    """Between all pairs of ``rows`` [k, N]: [k, k]."""
    if kind == "cosine":
        unit = normalize(rows, dim=1)
        return unit @ unit.T
    square = rows.square().sum(1)
    squared = square[:, None] + square - 2 * rows @ rows.T
    # The root has no slope at 0, where a row meets itself or a copy.
    return torch.where(squared > 1e-12, squared, 1e-12).sqrt()


def draw_items(n_items: int, share: float, seed: int, number: int, device: torch.device, stream: int = 0) -> Tensor:
    """A random subset of the items, at least two, the same for the same seed, number and stream."""
    key = streams.keys(seed, streams.Purpose.OTHER, 1 + number, torch.tensor([stream]))
    chosen = streams.uniform(key, torch.arange(n_items)).argsort()[: max(2, round(share * n_items))]
    return chosen.to(device)


def distil(
    tables: Sequence[Tensor],
    items: Tensor,
    *,
    lr: float,
    steps: int = 1,
    optimizer: Literal["sgd", "adam"] = "sgd",
    relation: Relation = "cosine",
) -> list[Tensor]:
    """New tables whose rows ``items`` moved towards the mean relations, by the mean squared error over pairs."""
    blocks = [table[items].clone().requires_grad_() for table in tables]
    kind = torch.optim.Adam if optimizer == "adam" else torch.optim.SGD
    chosen = kind(blocks, lr=lr)
    with torch.no_grad():
        target = torch.stack([relations(block, relation) for block in blocks]).mean(0)
    for _ in range(steps):
        chosen.zero_grad()
        with torch.enable_grad():
            loss = torch.stack([(relations(block, relation) - target).square().mean() for block in blocks]).sum()
            loss.backward()  # type: ignore[no-untyped-call]
        chosen.step()
    return [table.index_copy(0, items, block.detach()) for table, block in zip(tables, blocks, strict=True)]
