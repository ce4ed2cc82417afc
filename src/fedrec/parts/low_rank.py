"""Low-rank item updates: a shared random projection, and local training of the small factor behind it.

The rows of a client are base + low @ B with B [r, d] fixed and the same for everybody, so summing the low-rank factors
of all clients and multiplying once by B equals summing their full updates: what secure aggregation needs.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from fedrec.local.cpu.low_rank import train_low_rank
from fedrec.local.fit import Batch, Optimizer, Params, Step, fit, lookup
from fedrec.sampling import streams
from fedrec.sampling.samples import Samples

Projection = Literal["orthogonal", "gaussian", "row_normalised"]


def draw_projection(key: Tensor, rank: int, dim: int, kind: Projection) -> Tensor:
    """The projection B [rank, dim] of a stream ``key`` [1], float32 on the key's device.

    ``orthogonal`` is the polar factor of a Gaussian matrix times sqrt(d/r), so that B B' = (d/r) I.
    """
    # On the CPU, so that all devices use the same numbers.
    values = streams.normal(key.cpu(), torch.arange(rank * dim)).view(rank, dim)
    if kind == "orthogonal":
        left, _, right = torch.linalg.svd(values, full_matrices=False)
        values = left @ right * math.sqrt(dim / rank)
    elif kind == "gaussian":
        values = values / math.sqrt(rank)
    else:
        values = values / values.norm(dim=1, keepdim=True)
    return values.to(key.device, torch.float32)


def fit_low_rank(
    user: Tensor,
    base: Tensor,
    low: Tensor,
    projection: Tensor,
    samples: Samples,
    *,
    epochs: int,
    batch_size: int,
    lr: float,
    optimizer: Optimizer,
    per_row: bool,
    l2: float,
) -> Tensor:
    """Train user vectors [c, d] and factors ``low`` [c, R, r] in place; returns last mean losses without the L2 term.

    The loss is the batch's mean BCE plus ``l2`` times the mean of ||row||^2 + ||user||^2; gradients of ``low`` are
    multiplied by sqrt(r/d), and with ``per_row`` each row's is the mean over its own samples of the batch.
    """
    if user.device.type != "cpu":
        return fit_torch(
            user, base, low, projection, samples,
            epochs=epochs, batch_size=batch_size, lr=lr, optimizer=optimizer, per_row=per_row, l2=l2,
        )  # fmt: skip
    losses = torch.zeros(len(user))
    train_low_rank(
        user, base, low, projection, samples, losses,
        epochs=epochs, batch_size=batch_size, lr=lr, adam=optimizer == "adam", per_row=per_row, l2=l2,
    )  # fmt: skip
    return losses


def fit_torch(
    user: Tensor,
    base: Tensor,
    low: Tensor,
    projection: Tensor,
    samples: Samples,
    *,
    epochs: int,
    batch_size: int,
    lr: float,
    optimizer: Optimizer,
    per_row: bool,
    l2: float,
) -> Tensor:
    """``fit_low_rank`` by autograd, on any device."""
    shrink = math.sqrt(projection.shape[0] / projection.shape[1])

    def loss(params: Params, batch: Batch) -> Tensor:
        moving = lookup(params["low"], batch.slots)
        weight = _row_weights(batch, low.shape[1]) * shrink if per_row else shrink
        moving.register_hook(lambda gradient: gradient * weight)  # type: ignore[no-untyped-call]
        rows = lookup(params["base"], batch.slots) + moving @ projection
        bce = batch.bce((rows @ params["user"].unsqueeze(2)).squeeze(2))
        norms = rows.square().sum(2) + params["user"].square().sum(1, keepdim=True)
        penalty = l2 * batch.mean(norms)
        return bce + (penalty - penalty.detach())  # its gradient, but not its value

    return fit(
        {"user": user, "low": low, "base": base},
        loss,
        samples,
        epochs=epochs,
        batch_size=batch_size,
        steps=[Step(("user", "low"), lr, optimizer)],
    )


def _row_weights(batch: Batch, rows: int) -> Tensor:
    """[c, b, 1]: batch size over the number of samples of the same row, which turns shares of a mean into row means."""
    valid = batch.mask.float()
    slots = batch.slots.long()
    seen = valid.new_zeros(len(valid), rows).scatter_add_(1, slots, valid)
    return (valid.sum(1, keepdim=True) / seen.gather(1, slots).clamp(min=1)).unsqueeze(2)
