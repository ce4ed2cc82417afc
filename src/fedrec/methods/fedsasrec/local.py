"""Local training, every client by itself: some gradient steps on its own sequence, and what they changed."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedrec.federation.payload import Payload, RowUpdate, State
from fedrec.federation.task import Task
from fedrec.methods.fedsasrec.config import SasrecConfig
from fedrec.methods.fedsasrec.losses import all_losses, sampled_losses
from fedrec.parts.sequences import alike, newest
from fedrec.parts.transformer import dropout
from fedrec.sampling import streams

AT_ONCE = {"cpu": 1 << 24, "cuda": 1 << 29}
"""Numbers of the clients' own models and logits that are worked on at a time, beside the uploads."""


def train_alone(
    config: SasrecConfig,
    task: Task,
    model: State,
    history: Tensor,
    clients: Tensor,
    step: int,
    *,
    epochs: int,
    lr: float,
) -> tuple[Payload, Tensor]:
    """Changes after ``epochs`` steps of gradient descent each, and every client's mean loss before the first."""
    items, network = model["items"], model["network"]
    window, counts = newest(history, config.length + 1)
    window, lengths = window.long(), (counts - 1).clamp(min=0)
    keys, shared = config.keys(task, clients, step), config.drawn_items(task, step)
    rows = task.n_items if shared is None else len(shared) + window.shape[1]
    of_items, of_network = items.new_zeros(len(clients), rows, config.dim), items.new_zeros(len(clients), len(network))
    losses = items.new_zeros(len(clients))
    slopes_of = vmap(grad_and_value(_mean_loss(config, task.n_items, shared), argnums=(0, 1)), in_dims=(0, 0, 0, 0, 0))
    each = rows * config.dim + len(network) + window.shape[1] * (task.n_items if shared is None else rows)
    places = max(1, AT_ONCE[task.device.type] // each) * max(1, window.shape[1] - 1)
    for part, width in alike(lengths, places):
        seen = window[part, : width + 1]
        block = items.expand(len(part), *items.shape) if shared is None else _block(items, shared, seen)
        moved = [torch.zeros_like(block), of_network[part]]
        for epoch in range(epochs):
            drawn = keys[part] if epoch == 0 else streams.child(keys[part], epoch)
            kept = torch.stack(dropout(config.shape, drawn, width, config.dropout), 1) if config.dropout else drawn
            with sdpa_kernel(SDPBackend.MATH):  # the others are not made for a network per client
                slopes, found = slopes_of(block + moved[0], network + moved[1], seen, lengths[part], kept)
            moved = [change - lr * slope for change, slope in zip(moved, slopes, strict=True)]
            if epoch == 0:
                losses[part] = found
        of_items[part, : block.shape[1]], of_network[part] = moved
    if shared is None:
        return {"items": of_items, "network": of_network}, losses
    return {"items": _rows(shared, window, of_items, task.n_items), "network": of_network}, losses


def _mean_loss(config: SasrecConfig, n_items: int, shared: Tensor | None) -> Callable[..., Tensor]:
    def loss(block: Tensor, network: Tensor, window: Tensor, length: Tensor, kept: Tensor) -> Tensor:
        arrays, one, many = config.shape.split(network), window[None], length[None]
        drop = list(kept[:, None]) if config.dropout else []
        if shared is None:
            return all_losses(config.shape, arrays, block, one, many, drop)[0] / length
        others, own = torch.split(block, [len(shared), len(window)])
        return sampled_losses(config.shape, arrays, own[None], one, others, shared, n_items, many, drop)[0] / length

    return loss


def _block(items: Tensor, shared: Tensor, window: Tensor) -> Tensor:
    """Vectors [c, k + W, d] of the drawn items and of each client's own."""
    drawn = items[shared].expand(len(window), -1, -1)
    return torch.cat([drawn, items[window.clamp(min=0)]], 1)


def _rows(shared: Tensor, window: Tensor, changes: Tensor, n_items: int) -> RowUpdate:
    """The rows that moved: a client's own items, and the drawn ones it does not have."""
    drawn = shared.where(~(window[:, :, None] == shared).any(1), -1)
    rows = torch.cat([drawn, window], 1)
    order = torch.sort((rows < 0).to(torch.uint8), dim=1, stable=True).indices
    counts = (rows >= 0).sum(1)
    rows = rows.gather(1, order).clamp(min=0).int()
    values = changes.gather(1, order[..., None].expand_as(changes))
    real = torch.arange(rows.shape[1], device=rows.device) < counts[:, None]
    return RowUpdate(rows, counts, values * real[..., None], n_items)
