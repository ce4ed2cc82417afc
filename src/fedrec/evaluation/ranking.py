"""Exact positions of held-out items: how many other items score higher, and how many score the same."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from fedrec.errors import FedrecError

Masked = Tensor | tuple[Tensor, Tensor] | None
"""Items outside the ranking: a boolean [c, m] matrix, (rows, columns) index pairs, or nothing."""

CHUNK = 256  # rows compared at a time: 256 x 3,706 scores stay in a CPU's cache
MISSING = -1  # pads ragged lists of items; the ``better`` of a padded target


def check_finite(scores: Tensor, clients: Tensor | None = None) -> None:
    """Refuse NaN and infinite scores, naming the first client; ``clients`` numbers the rows (default 0..)."""
    # NaN passes through minimum and maximum, so one cheap pass over the matrix decides the usual case.
    if scores.numel() == 0 or all(bool(torch.isfinite(end)) for end in torch.aminmax(scores)):
        return
    bad = ~torch.isfinite(scores)
    rows = bad.any(1).nonzero()[:, 0]
    first = int(rows[0])
    client = first if clients is None else int(clients[first])
    what = "NaN" if bool(scores[first].isnan().any()) else "infinite values"
    raise FedrecError(
        f"scores of client {client} contain {what} ({len(rows)} of {len(scores)} clients are affected); "
        "training has diverged, so lower the learning rate or check the scoring code"
    )


def full_ranks(
    scores: Tensor, targets: Tensor, masked: Masked = None, clients: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Count, for each of a client's distinct ``targets`` [c, T], the other items above it and level with it.

    Returns ``(better, tied)``, both int64 [c, T]. Masked items are left out, except that a target is always
    ranked: repeated rows can put a held-out item among the training items. A client's other targets count
    like any item. Targets padded with -1 get better -1 and tied 0. Takes a masked copy of ``scores``.
    """
    check_finite(scores, clients)
    real = targets >= 0
    ranked = _without(scores, masked)
    wanted = scores.gather(1, targets.clamp(min=0)).to(ranked.dtype)
    if masked is not None:
        rows, slots = real.nonzero(as_tuple=True)
        ranked[rows, targets[rows, slots]] = wanted[rows, slots]
    count = _count_by_comparing if targets.shape[1] == 1 else _count_by_sorting
    parts = [count(*chunk) for chunk in zip(torch.split(ranked, CHUNK), torch.split(wanted, CHUNK), strict=True)]
    better = torch.cat([above for above, _ in parts])
    level = torch.cat([equal for _, equal in parts])
    return better.where(real, MISSING), (level - 1).where(real, 0)


def candidate_ranks(
    scores: Tensor, targets: Tensor, candidates: Tensor, clients: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Count the ``candidates`` [c, n] above each client's one target [c] and level with it; both int64 [c].

    Candidates that are padding (-1) or the target itself (some published files list it) are not counted.
    A client without a target (-1) gets better -1 and tied 0.
    """
    check_finite(scores, clients)
    real = targets >= 0
    wanted = scores.gather(1, targets.clamp(min=0)[:, None])
    rivals = scores.gather(1, candidates.clamp(min=0))
    counted = (candidates >= 0) & (candidates != targets[:, None])
    better = ((rivals > wanted) & counted).sum(1)
    tied = ((rivals == wanted) & counted).sum(1)
    return better.where(real, MISSING), tied.where(real, 0)


def top_items(scores: Tensor, masked: Masked, k: int, clients: Tensor | None = None) -> Tensor:
    """The ``k`` best unmasked items of every client, best first, int64 [c, k]; -1 where a client has fewer.

    Equal scores are ordered by item number, on every device.
    """
    check_finite(scores, clients)
    ranked = _without(scores, masked)
    n_items = ranked.shape[1]
    values, items = ranked.topk(min(k + 1, n_items))
    undecided = torch.zeros(len(ranked), dtype=torch.bool, device=ranked.device)
    if k < n_items:
        undecided = values[:, k - 1] == values[:, k]
    # topk leaves the order of equal scores open: by item number first, then, stably, by score.
    items = items[:, :k].sort(1).values
    by_score = ranked.gather(1, items).sort(dim=1, descending=True, stable=True).indices
    items = items.gather(1, by_score)
    # Where a tie straddles place k, topk may have picked any of the equal items: sort those rows in full.
    for rows in torch.split(undecided.nonzero()[:, 0], CHUNK):
        items[rows] = ranked[rows].sort(dim=1, descending=True, stable=True).indices[:, :k]
    items = items.where(ranked.gather(1, items) > -torch.inf, MISSING)
    return pad(items, (0, k - items.shape[1]), value=MISSING)


def _without(scores: Tensor, masked: Masked) -> Tensor:
    """The scores with masked items at minus infinity, below all scores that ``check_finite`` lets through."""
    if not scores.is_floating_point():
        scores = scores.double()
    if masked is None:
        return scores
    if isinstance(masked, Tensor):
        return scores.masked_fill(masked, -torch.inf)
    rows, columns = masked
    return scores.index_put((rows.long(), columns.long()), scores.new_tensor(-torch.inf))


def _count_by_comparing(ranked: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    above = (ranked > wanted).sum(1, keepdim=True)
    return above, (ranked == wanted).sum(1, keepdim=True)


def _count_by_sorting(ranked: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    ordered = ranked.sort(dim=1).values
    wanted = wanted.contiguous()
    up_to = torch.searchsorted(ordered, wanted, right=True)
    return ordered.shape[1] - up_to, up_to - torch.searchsorted(ordered, wanted)
