"""Pairs of positions of histories, compiled; ``fedrec.parts.order`` defines what is added and has the torch twin."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedrec.compute.cpu import compiled


@compiled
def add_pairs(
    first: int,
    last: int,
    items: Any,
    lengths: Any,
    near: Any,
    left: Any,
    after: Any,
    alike: int,
    scale: Any,
    past: Any,
    then: Any,
) -> None:
    """Add every client's entries to the rows first..last-1 of both sums, so that threads write to rows of their own."""
    for c in range(len(lengths)):
        n = lengths[c]
        for i in range(n):
            row = items[c, i]
            if row < first or row >= last:
                continue
            for j in range(n):
                column = items[c, j]
                gap = j - i if j > i else i - j
                if row <= column:
                    later = j if j > i else i
                    entry = np.rint(near[gap] * left[n - 1 - later]) + alike
                    past[row, column] += np.int64(np.rint(entry * scale[c]))
                entry = float((after[gap] if j > i else 0) + alike)
                then[row, column] += np.int64(np.rint(entry * scale[c]))
