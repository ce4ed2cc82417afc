"""Per-client metric values from the positions of held-out items, exact under ties.

A target with ``better`` items above it and ``tied`` items level with it lies in a tie block: the positions
better + 1 .. better + tied + 1, which it shares with those items in an order the scores do not decide.

- ``expected`` averages the metric over all orders of every block. This is exact for every metric, also when
  several targets of a client lie in one block, and needs no sampling.
- ``pessimistic`` lets targets lose every tie against other items, ``optimistic`` lets them win; targets of
  one block then follow each other at its end or its start.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import pad

from fedrec.errors import ConfigError, unknown

Ties = Literal["expected", "pessimistic", "optimistic"]


@dataclass(frozen=True)
class Metric:
    """A kind of metric and its cut-off, written ``kind@k``."""

    kind: str
    k: int

    def __str__(self) -> str:
        return f"{self.kind}@{self.k}"


@dataclass(frozen=True, eq=False)
class _Targets:
    """Sorted targets of every client, [c, T]; padding is last and lies beyond every cut-off."""

    above: Tensor  # items ranked above the tie block
    size: Tensor  # items in the tie block
    relevant: Tensor  # targets in the tie block
    earlier: Tensor  # targets above the tie block
    counts: Tensor  # [c]: held-out items of the client

    def slots(self, k: int) -> tuple[Tensor, Tensor]:
        """The positions of each block within the first ``k``, as bounds into cumulative tables."""
        return self.above.clamp(max=k), (self.above + self.size).clamp(max=k)


LONGEST = 2**31 - 1


def parse_metric(text: str) -> Metric:
    """Read a name such as ``ndcg@10``."""
    match = re.fullmatch(r"([A-Za-z]+)\W*(\d*)", text)
    kind = match[1].lower() if match else text
    if match is None or kind not in _METRICS:
        raise ConfigError(unknown("metric", kind, _METRICS))
    metric = Metric(kind, int(match[2] or 0) or 10)
    if metric.k > LONGEST:
        raise ConfigError(f"metric '{text}' looks at more than {LONGEST:,} places; use a smaller k.")
    if text != str(metric):
        raise ConfigError(f"metric '{text}' is not of the form name@k with k >= 1; did you mean '{metric}'?")
    return metric


def compute(
    names: Iterable[str],
    better: Tensor,
    tied: Tensor,
    counts: Tensor | None = None,
    ties: Ties = "expected",
) -> dict[str, Tensor]:
    """Per-client values (float64 [c]) of every named metric.

    ``better`` and ``tied`` are [c] or [c, T]; a negative ``better`` marks padding. ``counts`` is the number
    of held-out items of each client, by default the targets that are not padding. A client without any is
    NaN, not zero: leave it out of the mean.
    """
    if better.shape != tied.shape:
        raise ValueError(f"better {tuple(better.shape)} and tied {tuple(tied.shape)} differ in shape")
    if ties not in get_args(Ties):
        raise ConfigError(unknown("tie rule", ties, get_args(Ties)))
    if better.dim() == 1:
        better, tied = better[:, None], tied[:, None]
    targets = _arrange(better, tied, counts, ties)
    values = {}
    for name in names:
        metric = parse_metric(name)
        value = _METRICS[metric.kind](targets, metric.k)
        values[name] = value.where(targets.counts > 0, torch.nan)
    return values


def _arrange(better: Tensor, tied: Tensor, counts: Tensor | None, ties: Ties) -> _Targets:
    if better.shape[1] == 0:
        better, tied = pad(better, (0, 1), value=-1), pad(tied, (0, 1))
    real = better >= 0
    counts = real.sum(1) if counts is None else counts.to(better.device, torch.int64)
    beyond = torch.iinfo(torch.int64).max // 4
    above, order = better.long().where(real, beyond).sort(dim=1)
    size = tied.long().where(real, 0).gather(1, order) + 1
    earlier = torch.searchsorted(above, above)
    relevant = torch.searchsorted(above, above, right=True) - earlier
    if ties != "expected":
        # A fixed order is a ranking without ties: every target becomes a block of its own.
        position = torch.arange(above.shape[1], device=above.device) - earlier
        above = above + position + (size - relevant if ties == "pessimistic" else 0)
        earlier = earlier + position
        size, relevant = torch.ones_like(size), torch.ones_like(relevant)
    return _Targets(above, size, relevant, earlier, counts)


def _table(gains: Tensor) -> Tensor:
    """Cumulative sums with a leading zero, so that ``table[j] - table[i]`` sums positions i + 1 .. j."""
    return torch.cat([gains.new_zeros(1), gains.cumsum(0)])


def _positions(k: int, targets: _Targets) -> Tensor:
    return torch.arange(1, k + 1, dtype=torch.float64, device=targets.above.device)


def _hits(targets: _Targets, k: int) -> Tensor:
    start, end = targets.slots(k)
    return ((end - start).double() / targets.size).sum(1)


def _recall(targets: _Targets, k: int) -> Tensor:
    return _hits(targets, k) / targets.counts


def _precision(targets: _Targets, k: int) -> Tensor:
    return _hits(targets, k) / k


def _ndcg(targets: _Targets, k: int) -> Tensor:
    start, end = targets.slots(k)
    discounts = _table(1 / torch.log2(_positions(k, targets) + 1))
    gain = ((discounts[end] - discounts[start]) / targets.size).sum(1)
    return gain / discounts[targets.counts.clamp(max=k)]


def _average_precision(targets: _Targets, k: int) -> Tensor:
    # A target at place q of its block is found with precision (targets up to it) / position: itself, all
    # targets of earlier blocks and, of its block's other targets, the expected share (q - 1) / (size - 1).
    start, end = targets.slots(k)
    reciprocal = _table(1 / _positions(k, targets))
    inverse = reciprocal[end] - reciprocal[start]  # sum of 1 / position
    before = (end - start) - (start + 1) * inverse  # sum of (q - 1) / position
    share = (targets.relevant - 1).double() / (targets.size - 1).clamp(min=1)
    gain = ((1 + targets.earlier) * inverse + share * before) / targets.size
    return gain.sum(1) / targets.counts.clamp(max=k)


def _first_hit(targets: _Targets, k: int) -> tuple[Tensor, Tensor]:
    """Chance that a client's best-placed target is at a position, and these positions up to ``k``: [c, w]."""
    start, end = (bound[:, :1] for bound in targets.slots(k))
    size, relevant = targets.size[:, :1], targets.relevant[:, :1]
    width = int((end - start).max()) if len(start) else 0
    position = torch.arange(width, device=start.device)
    # Drawing the block's order item by item: each draw misses with (others left) / (items left).
    miss = (size - relevant - position).clamp(min=0).double() / (size - position).clamp(min=1)
    none_yet = torch.cat([miss.new_ones(len(miss), 1), miss.cumprod(1)], dim=1)
    chance = none_yet[:, :-1] - none_yet[:, 1:]
    return chance.where(position < end - start, 0), start + 1 + position


def _hit_rate(targets: _Targets, k: int) -> Tensor:
    return _first_hit(targets, k)[0].sum(1)


def _reciprocal_rank(targets: _Targets, k: int) -> Tensor:
    chance, position = _first_hit(targets, k)
    return (chance / position).sum(1)


_METRICS: dict[str, Callable[[_Targets, int], Tensor]] = {
    "hr": _hit_rate,
    "ndcg": _ndcg,
    "recall": _recall,
    "precision": _precision,
    "mrr": _reciprocal_rank,
    "map": _average_precision,
}
