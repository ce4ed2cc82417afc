"""Sums over clients: all that the server's step of a sum method gets to see.

Sums are associative: what one cohort, one process or one site added up is merged with what others did, and secure
aggregation can mask each part, because nobody needs a single client's value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor


class Total(Mapping[str, Tensor]):
    """Named sums. Methods add to it cohort after cohort, so that one table is held and not one per cohort."""

    def __init__(self, sums: Mapping[str, Tensor] | None = None) -> None:
        """Start from these sums, by default from nothing."""
        self._sums = dict(sums or {})

    def add(self, name: str, value: Tensor | float) -> None:
        """Add a cohort's sum, a tensor or a number."""
        if name in self._sums:
            self._sums[name] += value
        elif isinstance(value, Tensor):
            self._sums[name] = value.clone()
        else:
            self._sums[name] = torch.tensor(float(value), dtype=torch.float64)

    def add_rows(self, name: str, n_rows: int, rows: Tensor, values: Tensor) -> None:
        """Add ``values`` [k, d] to the ``rows`` [k] of a table of ``n_rows``; rows may repeat."""
        if name not in self._sums:
            self._sums[name] = values.new_zeros(n_rows, values.shape[1])
        self._sums[name].index_add_(0, rows, values)

    def table(self, name: str, *shape: int, like: Tensor, dtype: torch.dtype) -> Tensor:
        """The sum so far, to be added to in place; zeros where there is none yet."""
        if name not in self._sums:
            self._sums[name] = torch.zeros(shape, dtype=dtype, device=like.device)
        return self._sums[name]

    def merge(self, other: Total) -> Total:
        """The sums over the clients of both."""
        merged = {name: value.clone() for name, value in self.items()}
        for name, value in other.items():
            merged[name] = merged[name] + value if name in merged else value.clone()
        return Total(merged)

    def __getitem__(self, name: str) -> Tensor:
        return self._sums[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sums)

    def __len__(self) -> int:
        return len(self._sums)
