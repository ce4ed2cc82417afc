"""Scores from item-item weights: the weights of what a client has, summed up, what is recent counting more.

A history is a row of items, oldest first, padded with -1. ``None`` as decay counts all items the same.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from fedrec.compute import dispatch
from fedrec.compute.cpu import for_clients
from fedrec.data.training import Ragged, TrainingView
from fedrec.federation.payload import State
from fedrec.parts.cpu_recent import add_kept

AT_ONCE = 1 << 22
"""Numbers the reference gathers at a time."""


def own_history(view: TrainingView, clients: Tensor) -> State:
    """The training items of these clients, oldest first, as int32 [c, longest of all], padded with -1."""
    lists = view.history or _distinct(view)
    counts = torch.from_numpy(lists.counts)
    width = max(1, int(counts.max()) if len(counts) else 1)
    found = torch.full((len(clients), width), -1, dtype=torch.int32)
    counts, starts = counts[clients], torch.tensor(lists.offsets)[clients]
    owners = torch.repeat_interleave(torch.arange(len(clients)), counts)
    position = torch.arange(len(owners)) - (counts.cumsum(0) - counts)[owners]
    found[owners, position] = torch.tensor(lists.values)[starts[owners] + position]
    return {"history": found}


def _distinct(view: TrainingView) -> Ragged:
    """Training items, each once, in an order that means nothing."""
    owners, items = np.divmod(np.unique(view.positives.owners * view.n_items + view.positives.values), view.n_items)
    return Ragged.build(owners, items, view.n_clients)


def appended(history: Tensor, later: Tensor) -> Tensor:
    """Histories [c, W + k] with the items ``later`` [c, k] behind the others; both are padded with -1."""
    both = torch.cat([history, later.to(history.dtype)], 1)
    return both.gather(1, (both < 0).to(torch.uint8).sort(dim=1, stable=True).indices)


def recency(history: Tensor, decay: float | None) -> Tensor:
    """How much every item of a history counts, float32 [c, W]: exp(-(L - j) / decay); 0 for padding."""
    real = history >= 0
    if decay is None:
        return real.float()
    age = real.sum(1, keepdim=True) - 1 - torch.arange(history.shape[1], device=history.device)
    return torch.exp(-age.double() / decay).where(real, 0).float()


def dense_scores(history: Tensor, counts: Tensor, weights: Tensor) -> Tensor:
    """Scores [c, k] with weights [m, k]."""
    real = history >= 0
    lengths = real.sum(1)
    begins = lengths.cumsum(0) - lengths
    return embedding_bag(history[real].long(), weights, begins, mode="sum", per_sample_weights=counts[real])


def dense_parts(history: Tensor, counts: Tensor, weights: Tensor, items: Tensor) -> Tensor:
    """What every item of a history adds to the scores of ``items`` [c, k], as [c, W, k]; padding adds 0."""
    return weights[history.clamp(min=0).long()[:, :, None], items[:, None, :]] * counts[:, :, None]


def kept_parts(history: Tensor, counts: Tensor, values: Tensor, kept: Tensor, items: Tensor) -> Tensor:
    """The same with the kept weights of every item, ``values`` at ``kept`` [m, k]."""
    own = history.clamp(min=0).long()
    alike = kept[own][:, :, :, None] == items[:, None, None, :]
    return (alike * values[own].float()[:, :, :, None]).sum(2) * counts[:, :, None]


def largest(weights: Tensor, keep: int) -> tuple[Tensor, Tensor]:
    """The ``keep`` largest weights of every row by absolute value: values and items [m, keep], in the order of items."""
    found = weights.abs().topk(min(keep, weights.shape[1]), dim=1).indices.sort(1).values
    return weights.gather(1, found), found


def kept_scores(history: Tensor, counts: Tensor, values: Tensor, items: Tensor) -> Tensor:
    """Scores [c, m] with the kept weights of every item, ``values`` at ``items`` [m, k]."""
    scores = torch.zeros(len(history), len(values), device=history.device)
    if dispatch.compiled_on(scores.device) == "cpu":
        arrays = [t.contiguous().numpy() for t in (history, counts, values.float(), items.int(), scores)]
        for_clients(lambda first, last: add_kept(first, last, *arrays), arrays[0][:, 0] * 0 + 1, unit=1e5)
        return scores
    owners, position = (history >= 0).nonzero(as_tuple=True)
    for part in torch.split(torch.arange(len(owners), device=owners.device), max(1, AT_ONCE // values.shape[1])):
        rows, own = owners[part], history[owners[part], position[part]].long()
        added = values[own].float() * counts[rows, position[part]][:, None]
        scores.view(-1).index_add_(0, (rows[:, None] * len(values) + items[own].long()).flatten(), added.flatten())
    return scores
