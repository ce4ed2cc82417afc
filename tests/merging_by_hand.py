"""Merging as its formulas say (Eq. 9-10 of FedEM), one client at a time, for tests that recompute whole rounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedrec.data.training import Ragged, TrainingView

ITEMS, DIM, HIDDEN, SEED = 12, 2, 3, 5
POSITIVES = [[0, 1, 2, 3, 4, 5], [4, 5, 6, 7], [8, 9, 10], [0, 2, 4, 6, 8]]
EVERYBODY = torch.arange(len(POSITIVES))


def view_of_four() -> TrainingView:
    """Four clients with these positives."""
    owners = np.repeat(np.arange(len(POSITIVES)), [len(own) for own in POSITIVES])
    lists = Ragged.build(owners, np.concatenate(POSITIVES), len(POSITIVES))
    return TrainingView(len(POSITIVES), ITEMS, lists, lists)


def adapter(theta: Tensor, local: Tensor, server: Tensor) -> Tensor:
    """rho of every row (Eq. 9)."""
    sizes = [2 * DIM * HIDDEN, HIDDEN, HIDDEN, 1]
    first, first_bias, second, bias = torch.split(theta, sizes)
    hidden = (torch.cat([local, server - local], 1) @ first.view(HIDDEN, 2 * DIM).T + first_bias).relu()
    return torch.sigmoid(hidden @ second + bias)


def merged(c: Any, theta: Tensor, local: Tensor, server: Tensor, rows: Tensor | slice = slice(None)) -> Tensor:
    """Rows of the table a client goes on with (Eq. 10 and Table 2)."""
    if c.merge == "elastic":
        rho: Any = adapter(theta, local[rows], server[rows])[:, None]
    elif c.merge == "dynamic" and c.dynamic_pool == "items":
        rho = adapter(theta, local, server).mean()
    elif c.merge == "dynamic":
        rho = adapter(theta, local.mean(0, keepdim=True), server.mean(0, keepdim=True))
    else:
        rho = {"replace": 1.0, "static": c.rho, "none": 0.0}[c.merge]
    return rho * server[rows] + (1 - rho) * local[rows]
