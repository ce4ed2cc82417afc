"""A share of the clients is aggregated and gets a table, the others go on with their own: FedEM's released engine."""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from fedrec.federation.task import Task
from fedrec.parts.merger import MergeSettings
from fedrec.sampling import streams


class ServedSettings(MergeSettings):
    """Who is aggregated and gets a table, and how adapters and embeddings take turns."""

    agg_ratio: float = Field(1.0, gt=0, le=1)
    """Share of the participants that upload, are aggregated, and get a table."""
    adapter_schedule: Literal["before", "interleaved"] = "before"
    """Adapter phase before merging (Eq. 11, then 10), or one adapter step before every embedding step."""
    train_through_adapter: bool = False
    """Embedding steps look through the adapter (rows are then merged twice), or at the rows alone (Eq. 12)."""
    early_stop_tol: float = Field(0.0, ge=0)
    """A client's round ends when its running mean loss changes less, relatively; 0: never."""

    @property
    def looks_through(self) -> bool:
        """Whether local training meets the adapter at all."""
        adapts = self.merge in ("dynamic", "elastic")
        return adapts and (self.adapter_schedule == "interleaved" or self.train_through_adapter)

    @model_validator(mode="after")
    def _consistent_merging(self) -> Self:
        if self.merge == "dynamic" and self.looks_through:
            raise ValueError("dynamic merging needs adapter_schedule=before and train_through_adapter=false")
        return self


def uploaders(task: Task, drawn: Tensor, ratio: float, round: int) -> Tensor:
    """[n] bool: the random share of a round's participants whose tables are aggregated."""
    if ratio < 1:
        rng = np.random.default_rng([task.seed, int(streams.Purpose.OTHER), round])
        k = max(1, int(ratio * len(drawn)))
        drawn = drawn[torch.from_numpy(rng.choice(len(drawn), k, replace=False))]
    chosen = torch.zeros(task.n_clients, dtype=torch.bool)
    chosen[drawn] = True
    return chosen
