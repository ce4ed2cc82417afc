"""Positions of held-out items and lists of the best, compiled: one pass over a row of scores while it is in the cache.

``fedrec.evaluation.ranking`` defines what is counted, and has the torch twins. Nothing is masked here: items are counted over
the whole row, and what the few hidden ones of a client added is taken off again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedrec.compute.cpu import compiled

ZERO, ONE = np.float32(0), np.float32(1)
FREE, HIDDEN, TARGET = np.uint8(0), np.uint8(1), np.uint8(2)
STEP = 1 << 12  # scores looked at in one go; sums of so many ones are exact in float32
BLOCK = 64  # scores that are passed over together where none is among the best
FEW = 2  # targets that are compared with every score; more are sorted


@compiled
def rank_range(
    first: int,
    last: int,
    scores: Any,
    clients: Any,
    targets: Any,
    columns: Any,
    depths: Any,
    lists: Any,
    candidates: Any,
    above: Any,
    level: Any,
    better: Any,
    tied: Any,
    finite: Any,
) -> None:
    """Rank the ``targets`` [c, K], padded with -1, of the clients at places first..last-1.

    ``columns`` [p + 1] says which targets belong to which part; the items of the first ``depths`` [p] of the ragged ``lists`` are
    hidden from that part. ``above`` and ``level`` [c, K] count other items, ``better`` and ``tied`` [p, c] those of the
    ``candidates`` (for each part [n, L], or [0, 0] where it has none) against a part's first target.
    """
    m, most = scores.shape[1], targets.shape[1]
    marks = np.zeros(m, np.uint8)
    wanted, order = np.empty(most, np.float32), np.empty(most, np.int64)
    ordered, bins = np.empty(most, np.float32), np.empty(most + 1, np.int64)
    equal = np.empty(most + 1, np.int64)
    for c in range(first, last):
        row, own = scores[c], targets[c]
        count = 0
        for k in range(most):
            above[c, k], level[c, k] = 0, 0
            if own[k] >= 0:
                wanted[count], order[count] = row[own[k]], k
                count += 1
        finite[c] = is_finite(row)
        if count <= FEW:
            for k in range(count):
                above[c, order[k]], level[c, order[k]] = count_one(row, wanted[k])
        else:
            count_many(row, wanted[:count], order, ordered, bins, equal, above[c], level[c])
        for part in range(len(depths)):
            start, end = columns[part], columns[part + 1]
            counts = above[c, start:end], level[c, start:end]
            leave_out(row, clients[c], own[start:end], depths[part], lists, marks, counts)
            if candidates[part].shape[1] > 0 and own[start] >= 0:
                drawn = candidates[part][clients[c]]
                value = row[own[start]]
                more, same = 0, 0
                for item in drawn:
                    if item >= 0 and item != own[start]:
                        more += row[item] > value
                        same += row[item] == value
                better[part, c], tied[part, c] = more, same


@compiled
def is_finite(row: Any) -> bool:
    """Whether no score is NaN or infinite: zero times any of those is NaN."""
    nothing = ZERO
    for j in range(len(row)):
        nothing += row[j] * ZERO
    return bool(nothing == ZERO)


@compiled
def count_one(row: Any, value: Any) -> tuple[int, int]:
    """How many scores are above a value, and how many are level with it, itself among them."""
    above, level = 0, 0
    for start in range(0, len(row), STEP):
        part = row[start : start + STEP]
        more, same = ZERO, ZERO
        for j in range(len(part)):
            more += ONE if part[j] > value else ZERO
            same += ONE if part[j] == value else ZERO
        above += int(more)
        level += int(same)
    return above, level


@compiled
def count_many(row: Any, wanted: Any, order: Any, ordered: Any, bins: Any, equal: Any, above: Any, level: Any) -> None:
    """The same for many values: every score is looked up among the sorted values."""
    count = len(wanted)
    by_value = np.argsort(wanted)
    for k in range(count):
        ordered[k] = wanted[by_value[k]]
    bins[: count + 1], equal[: count + 1] = 0, 0
    lowest = ordered[0]
    for j in range(len(row)):
        score = row[j]
        if score >= lowest:
            low, high = 0, count  # the number of values below the score
            while low < high:
                middle = (low + high) >> 1
                if ordered[middle] < score:
                    low = middle + 1
                else:
                    high = middle
            bins[low] += 1
            if low < count and ordered[low] == score:
                equal[low] += 1
    over = 0
    for k in range(count - 1, -1, -1):
        over += bins[k + 1]
        place = k
        while place > 0 and ordered[place - 1] == ordered[k]:
            place -= 1
        slot = order[by_value[k]]
        above[slot], level[slot] = over, equal[place]


@compiled
def leave_out(row: Any, client: int, own: Any, depth: int, lists: Any, marks: Any, counts: Any) -> None:
    """Take hidden items off the counts; a target is always ranked, also where it is hidden, and counts like any other."""
    above, level = counts
    for item in own:
        if item >= 0:
            marks[item] = TARGET
    for number in range(depth):
        offsets, values = lists[number]
        for item in values[offsets[client] : offsets[client + 1]]:
            if marks[item] == FREE:
                marks[item] = HIDDEN
                score = row[item]
                for k in range(len(own)):
                    if own[k] >= 0:
                        above[k] -= score > row[own[k]]
                        level[k] -= score == row[own[k]]
    for item in own:
        if item >= 0:
            marks[item] = FREE
    for number in range(depth):
        offsets, values = lists[number]
        for item in values[offsets[client] : offsets[client + 1]]:
            marks[item] = FREE


@compiled
def top_range(
    first: int, last: int, scores: Any, clients: Any, offsets: Any, values: Any, out: Any, finite: Any
) -> None:
    """The best items of each client without those of its list, best first, the earlier item among equals; -1 is padding."""
    m, k = scores.shape[1], out.shape[1]
    marks, best = np.zeros(m, np.uint8), np.empty(k, np.float32)
    for c in range(first, last):
        row, hidden = scores[c], values[offsets[clients[c]] : offsets[clients[c] + 1]]
        finite[c] = is_finite(row)
        for item in hidden:
            marks[item] = HIDDEN
        found, worst = 0, np.float32(-np.inf)
        for start in range(0, m, BLOCK):
            part, hits = row[start : start + BLOCK], ZERO
            for j in range(len(part)):  # over a slice from its beginning, which is compiled to twice the speed
                hits += ONE if part[j] > worst else ZERO
            if hits == ZERO:
                continue
            for j in range(start, start + len(part)):
                if row[j] > worst and marks[j] == FREE:
                    place = min(found, k - 1)
                    while place > 0 and best[place - 1] < row[j]:
                        best[place], out[c, place] = best[place - 1], out[c, place - 1]
                        place -= 1
                    best[place], out[c, place] = row[j], j
                    found = min(found + 1, k)
                    if found == k:
                        worst = best[k - 1]
        for place in range(found, k):
            out[c, place] = -1
        for item in hidden:
            marks[item] = FREE
