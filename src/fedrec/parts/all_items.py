"""Cross-entropy over all items, with its gradients worked out block by block, so that no table of all logits is held."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

NUMBERS = {"cpu": 1 << 21, "cuda": 1 << 28}
"""Logits worked on at a time."""


class _Losses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, table: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        losses = torch.empty(len(hidden), device=hidden.device)
        of_hidden, of_table = torch.empty_like(hidden), torch.zeros_like(table)
        size = max(1, NUMBERS[hidden.device.type] // max(1, len(table)))
        for first in range(0, len(hidden), size):
            part = slice(first, first + size)
            wanted = targets[part, None]
            logits = hidden[part] @ table.T
            top = logits.amax(1, keepdim=True)
            chosen = logits.gather(1, wanted) - top
            shares = logits.sub_(top).exp_()
            sums = shares.sum(1, keepdim=True)
            losses[part] = (sums.log() - chosen)[:, 0]
            shares.div_(sums).scatter_add_(1, wanted, shares.new_full((1, 1), -1.0).expand(len(wanted), 1))
            torch.mm(shares, table, out=of_hidden[part])
            of_table.addmm_(shares.T, hidden[part])
        ctx.save_for_backward(of_hidden, of_table)
        ctx.mark_non_differentiable(losses)
        return losses.sum(), losses

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, Tensor, None]:
        of_hidden, of_table = ctx.saved_tensors
        return of_hidden * outer[0], of_table * outer[0], None


def summed_loss(hidden: Tensor, table: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The sum of -log softmax(hidden table')[targets] over rows [T, d], and every row's value, without gradient."""
    total, losses = _Losses.apply(hidden, table, targets)  # type: ignore[no-untyped-call]
    return total, losses
