"""Losses of clients as plain functions: against all items, or against the client's own and a few drawn ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedrec.parts.transformer import Shape, hidden


def all_losses(
    shape: Shape,
    network: Mapping[str, Tensor],
    items: Tensor,
    window: Tensor,
    lengths: Tensor,
    kept: Sequence[Tensor],
) -> Tensor:
    """Every client's loss [c], summed over its places: cross-entropy over all items [m, d] of windows [c, W + 1]."""
    states = hidden(shape, network, items[window[:, :-1].clamp(min=0)], lengths, kept)
    logits = states @ items.T
    wanted = logits.gather(2, window[:, 1:, None].clamp(min=0))[..., 0]
    return _summed(logits.logsumexp(2) - wanted, lengths)


def sampled_losses(
    shape: Shape,
    network: Mapping[str, Tensor],
    own: Tensor,
    window: Tensor,
    others: Tensor,
    shared: Tensor,
    n_items: int,
    lengths: Tensor,
    kept: Sequence[Tensor],
) -> Tensor:
    """The same against the client's own items [c, W + 1, d] and the ``shared`` drawn ones, with vectors ``others`` [k, d].

    A drawn item stands for ``n_items`` / k others, so with all items drawn this is the loss against all of them.
    """
    states = hidden(shape, network, own[:, :-1], lengths, kept)
    mine = states @ own.transpose(1, 2)
    place = torch.arange(own.shape[1] - 1, device=own.device)
    wanted = mine[:, place, place + 1]
    mine = mine.masked_fill((window < 0)[:, None, :], -math.inf)
    had = (window[:, :, None] == shared).any(1)
    theirs = (states @ others.transpose(-1, -2) + math.log(n_items / len(shared))).masked_fill(
        had[:, None, :], -math.inf
    )
    return _summed(torch.cat([mine, theirs], 2).logsumexp(2) - wanted, lengths)


def _summed(losses: Tensor, lengths: Tensor) -> Tensor:
    real = torch.arange(losses.shape[1], device=losses.device) < lengths[:, None]
    return losses.where(real, 0.0).sum(1)
