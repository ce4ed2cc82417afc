"""The training samples of one cohort of clients in one round."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Samples:
    """Positives and drawn negatives of ``c`` clients, padded to the largest client (``S`` samples, ``R`` rows).

    Sample ``k`` of a client belongs to its training positive ``k // (1 + negatives)``; the first of each group is the
    positive itself, the others are its negatives. ``rows`` lists the items a client touches this round in ascending
    order, and ``slots`` points every sample to its row, so that training can work on the compact block
    ``table[rows]``. Padding is 0 everywhere and lies beyond ``counts`` and ``row_counts``.
    """

    clients: Tensor  # [c] int64: client numbers
    items: Tensor  # [c, S] int32: item of each sample
    labels: Tensor  # [c, S] float32: 1 for positives, 0 for negatives
    slots: Tensor  # [c, S] int32: position of the item in ``rows``
    counts: Tensor  # [c] int64: samples per client
    rows: Tensor  # [c, R] int32: touched items, ascending
    row_counts: Tensor  # [c] int64: touched items per client
    positives: Tensor  # [c] int64: training positives per client
    seed: int  # with ``round`` and the client number: the stream of the epochs' shuffles
    round: int

    @property
    def valid(self) -> Tensor:
        """[c, S]: which samples are real."""
        return torch.arange(self.items.shape[1], device=self.items.device) < self.counts[:, None]

    @property
    def valid_rows(self) -> Tensor:
        """[c, R]: which rows are real."""
        return torch.arange(self.rows.shape[1], device=self.rows.device) < self.row_counts[:, None]
