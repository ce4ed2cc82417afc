"""Scores from the kept item-item weights, compiled; ``fedrec.parts.recent`` has the torch twin."""

from __future__ import annotations

from typing import Any

from fedrec.compute.cpu import compiled


@compiled
def add_kept(first: int, last: int, history: Any, counts: Any, values: Any, items: Any, scores: Any) -> None:
    """Add the weights of every item of the histories first..last-1 to ``scores`` [c, m]."""
    for c in range(first, last):
        for j in range(history.shape[1]):
            own = history[c, j]
            if own < 0:
                break
            for k in range(values.shape[1]):
                scores[c, items[own, k]] += counts[c, j] * values[own, k]
