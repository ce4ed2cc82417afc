"""How clients merge: the settings, the adapters, their training, and the merged table, for every method that merges.

Chen, Zhang, Zhang, Luo, Li, "Breaking the Aggregation Bottleneck in Federated Recommendation: A Personalized
Model Merging Approach", AAAI 2026, Eq. 9-11.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import BaseModel, Field
from torch import Tensor

from fedrec.federation.payload import State
from fedrec.federation.store import ClientState
from fedrec.federation.task import Task
from fedrec.parts import merging
from fedrec.sampling import streams

OWN, STARTED, ADAPTER = "own_table", "started", "adapter"


class MergeSettings(BaseModel):
    """How a client merges the item table it downloads with the one it has."""

    merge: merging.Mode = "elastic"
    """replace (SR), static (SM), dynamic (DM), elastic (EM), or none (clients keep their own table)."""
    rho: float = Field(0.5, ge=0, le=1)
    """Weight of the downloaded table under static merging."""
    dynamic_pool: merging.Pool = "items"
    """Dynamic merging: mean of the adapter over all items, or the adapter of the mean row."""
    adapter_hidden: tuple[Annotated[int, Field(ge=1)], ...] = (16, 8)
    """Hidden layers of the adapter."""
    adapter_lr: float | None = Field(0.1, gt=0)
    """Learning rate of the adapter (beta)."""
    adapter_epochs: int | None = Field(10, ge=1)
    """Epochs of the adapter phase."""


@dataclass(frozen=True)
class Merger:
    """Merging of tables of ``dim`` columns."""

    settings: MergeSettings
    dim: int
