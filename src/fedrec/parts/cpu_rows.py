"""Adding up the rows that clients touched, compiled; ``fedrec.parts.aggregation`` says what is added, and has the torch twin."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedrec.compute.cpu import compiled


@compiled
def add_range(
    first: int, last: int, rows: Any, counts: Any, values: Any, factors: Any, sums: Any, touches: Any
) -> None:
    """Add the clients' rows [c, R] of the items first..last-1, times their factors [c], to ``sums`` and ``touches`` [m].

    A client's rows ascend, so those in the range follow each other. Every item is added to by one thread, client by client:
    the order of additions is that of one thread, whatever the number of threads.
    """
    for c in range(len(rows)):
        own = rows[c, : counts[c]]
        factor = factors[c]
        place = np.searchsorted(own, first)
        while place < len(own) and own[place] < last:
            item = own[place]
            for k in range(values.shape[2]):
                sums[item, k] += factor * values[c, place, k]
            touches[item] += np.float32(1)
            place += 1
