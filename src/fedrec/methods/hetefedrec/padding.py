"""Padding-based aggregation: changes of tables with nested columns, summed over clients of every size.

A change of N columns is a change of the widest table with zeros on the right, so columns [0, N_s) hear all clients,
[N_s, N_m) only the medium and large ones, and so on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedrec.federation.payload import RowUpdate, Upload
from fedrec.federation.total import Total
from fedrec.methods.hetefedrec.config import Rule


def add_sized(total: Total, size: int, upload: Upload, name: str) -> None:
    """Add a cohort whose tables have the size number ``size``: the sum of changes, who touched a row, how many clients."""
    part = upload.parts[name]
    total.add(f"clients{size}", len(upload.clients))
    if isinstance(part, RowUpdate):
        # Padding has zero values and weight, so rows need not be picked out first.
        index = part.rows.flatten().long()
        total.add_rows(f"{name}{size}", part.n_items, index, part.values.flatten(0, 1))
        total.add_rows(f"touched{size}", part.n_items, index, part.valid.flatten()[:, None].float())
    else:
        assert isinstance(part, Tensor)
        total.add(f"{name}{size}", part.sum(0))
        total.add(f"touched{size}", part.new_full((part.shape[1], 1), len(part)))


class PaddedSum:
    """The sums of a round, size by size; ``combined`` is what a table of one size should move by."""

    def __init__(
        self, total: Mapping[str, Tensor], name: str, sizes: Sequence[int], n_items: int, device: torch.device
    ) -> None:
        """``sizes`` are the columns of each table, ascending."""

        def known(what: str, *shape: int) -> Tensor:
            return total[what] if what in total else torch.zeros(shape, device=device)

        self.sizes = sizes
        self.total = [known(f"{name}{index}", n_items, size) for index, size in enumerate(sizes)]
        self.touched = [known(f"touched{index}", n_items, 1) for index in range(len(sizes))]
        # Whole numbers, but tensors: what is recorded on a GPU must not hold those of one round.
        self.clients = [known(f"clients{index}").to(device, torch.float32).trunc() for index in range(len(sizes))]

    def add_constant(self, size: int, change: Tensor) -> None:
        """Add a change that every client of this size would have sent."""
        self.total[size] = self.total[size] + self.clients[size] * change
        self.touched[size] = self.clients[size].expand_as(self.touched[size])

    def combined(self, size: int, rule: Rule, padded: bool = True) -> Tensor:
        """The sum [m, N] over all clients (or those of this size), or its mean over contributors.

        Contributors to a column are the round's clients that have it; with ``touched`` those that also touched the row.
        """
        if not padded:
            weight = self.touched[size] if rule == "touched" else self.clients[size]
            return self.total[size] if rule == "sum" else self.total[size] / weight.clamp(min=1)
        total = torch.zeros_like(self.total[size])
        weight = torch.zeros_like(total)
        for other, width in enumerate(self.sizes):
            width = min(width, self.sizes[size])
            total[:, :width] += self.total[other][:, :width]
            weight[:, :width] += self.touched[other] if rule == "touched" else self.clients[other]
        return total if rule == "sum" else total / weight.clamp(min=1)
