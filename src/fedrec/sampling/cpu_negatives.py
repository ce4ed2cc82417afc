"""Negative sampling, compiled; ``fedrec.sampling.negatives`` defines it and has the torch twin."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedrec.compute.cpu import compiled
from fedrec.sampling.cpu_streams import below, client_key

NEGATIVES = np.uint64(1)  # the value of ``Purpose.NEGATIVES``


@compiled
def draw_range(
    first: int,
    last: int,
    clients: Any,
    positive_offsets: Any,
    positive_values: Any,
    excluded_offsets: Any,
    excluded_values: Any,
    n_items: int,
    negatives: int,
    seed: Any,
    round: int,
    items: Any,
    labels: Any,
    slots: Any,
    rows: Any,
    row_counts: Any,
) -> None:
    """Fill the last five arrays for the clients at places first..last-1 of ``clients``."""
    taken_by = np.full(n_items, -1, np.int32)  # last positive that drew the item; -2: never a negative of this client
    place = np.empty(n_items, np.int32)
    words = np.zeros((n_items + 7) // 8, np.uint64)  # one byte per item: touched; read as words to skip gaps
    touched = words.view(np.uint8)
    for c in range(first, last):
        client = clients[c]
        excluded = excluded_values[excluded_offsets[client] : excluded_offsets[client + 1]]
        positives = positive_values[positive_offsets[client] : positive_offsets[client + 1]]
        key = client_key(seed, NEGATIVES, round, client)
        for item in excluded:
            taken_by[item] = -2
        k = 0
        for j in range(len(positives)):
            items[c, k] = positives[j]
            labels[c, k] = np.float32(1)
            touched[positives[j]] = 1
            k += 1
            for s in range(negatives):
                index = np.uint64(j * negatives + s)
                item = below(key, index, n_items)
                while taken_by[item] == -2 or taken_by[item] == j:
                    index += np.uint64(1 << 32)
                    item = below(key, index, n_items)
                taken_by[item] = j
                touched[item] = 1
                items[c, k] = item
                k += 1
        count = 0
        for w in range(len(words)):
            if words[w] != 0:
                for item in range(8 * w, min(8 * w + 8, n_items)):
                    if touched[item] != 0:
                        rows[c, count] = item
                        place[item] = count
                        count += 1
                words[w] = 0
        row_counts[c] = count
        # Only what this client changed is set back: a catalogue may be large and a client small.
        for item in excluded:
            taken_by[item] = -1
        for i in range(count):
            taken_by[rows[c, i]] = -1
        for i in range(k):
            slots[c, i] = place[items[c, i]]
