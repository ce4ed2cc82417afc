"""Settings of the transformer over sequences, its model, and a block's gradient: shared with the centralised twin."""

from __future__ import annotations

from typing import Any

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn.functional import embedding

from fedrec.federation.config import MethodConfig
from fedrec.federation.payload import State
from fedrec.federation.task import Task
from fedrec.methods.fedsasrec.losses import sampled_losses
from fedrec.parts.adamw import MOMENTS
from fedrec.parts.all_items import summed_loss
from fedrec.parts.sequences import PLACES, alike, newest
from fedrec.parts.transformer import Shape, dropout, hidden
from fedrec.sampling import streams

LEARNED = ("items", "network")


class SasrecConfig(MethodConfig):
    """Settings of SASRec and FedSasrec."""

    dim: int = Field(64, ge=1, le=4096)
    """Size of an embedding."""
    layers: int = Field(2, ge=1, le=64)
    """Blocks of the transformer."""
    heads: int = Field(2, ge=1)
    """Of attention; they share ``dim``."""
    length: int = Field(200, ge=1)
    """Newest items of a history that are looked at."""
    dropout: float = Field(0.2, ge=0, lt=1)
    """Share of numbers dropped after the embedding and after both halves of every block."""
    lr: float = Field(0.001, gt=0)
    """Learning rate of AdamW, which the server steps with."""
    weight_decay: float = Field(0.01, ge=0)
    """Of AdamW: every step takes this share of lr off every number."""
    block: int = Field(256, ge=1)
    """Clients in a step; as many steps as cover all clients once are a round of a run."""
    sampled: int | None = Field(None, ge=1)
    """Losses against a client's own items and so many drawn ones, the same for all clients of a step; none: all items."""
    init_std: float = Field(0.02, gt=0)
    """Standard deviation of initial values."""

    @property
    def uses_order(self) -> bool:
        """Always."""
        return True

    @model_validator(mode="after")
    def _heads_share_it(self) -> SasrecConfig:
        if self.dim % self.heads:
            raise ValueError(f"dim {self.dim} cannot be shared by {self.heads} heads; make it a multiple of heads")
        return self

    @property
    def shape(self) -> Shape:
        """Of the network."""
        return Shape(self.dim, self.layers, self.heads, self.length)

    def initial(self, task: Task) -> State:
        """Random values that are a function of the seed alone, and AdamW before its first step."""
        generator = task.generator()
        table = task.normal(task.n_items, self.dim, std=self.init_std, generator=generator)
        network = self.shape.initial(self.init_std, generator).to(task.device)
        model = {"items": table, "network": network, "steps": torch.zeros(1, device=task.device)}
        return model | {f"{kind}.{name}": torch.zeros_like(model[name]) for kind in MOMENTS for name in LEARNED}

    def drawn_items(self, task: Task, step: int) -> Tensor | None:
        """The items [k] that losses of a step are against, beside a client's own; None for all."""
        if self.sampled is None:
            return None
        key = task.common_key(streams.Purpose.NEGATIVES, step).to(task.device)
        keys = streams.bits(key, torch.arange(task.n_items, device=task.device))
        return torch.argsort(keys, stable=True)[: self.sampled].sort().values

    def keys(self, task: Task, clients: Tensor, step: int) -> Tensor:
        """Keys [c] of the streams that say what is dropped."""
        return streams.keys(task.seed, streams.Purpose.DROPOUT, step, clients.to(task.device))

    def gradient(
        self, task: Task, model: State, history: Tensor, clients: Tensor, step: int
    ) -> tuple[State, Tensor, Tensor]:
        """Summed gradients of all these clients' losses, every client's loss, summed over its places, and their number."""
        items, network = (model[name].detach().clone().requires_grad_() for name in LEARNED)
        window, counts = newest(history, self.length + 1)
        lengths = (counts - 1).clamp(min=0)
        losses = torch.zeros(len(clients), device=task.device)
        keys, shared = self.keys(task, clients, step), self.drawn_items(task, step)
        with torch.enable_grad():
            for chosen, width in alike(lengths, PLACES[task.device.type]):
                part = window[chosen, : width + 1].long()
                kept = dropout(self.shape, keys[chosen], width, self.dropout)
                total, found = self._loss(items, network, part, lengths[chosen], kept, shared)
                total.backward()  # type: ignore[no-untyped-call]
                losses[chosen] = found
        sums = {"items": items, "network": network}
        zeros = {
            name: value.grad if value.grad is not None else torch.zeros_like(value) for name, value in sums.items()
        }
        return zeros, losses, lengths

    def _loss(
        self,
        items: Tensor,
        network: Tensor,
        window: Tensor,
        lengths: Tensor,
        kept: list[Tensor],
        shared: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """The sum of the losses of these windows [c, W + 1], and each client's own [c]."""
        arrays, own = self.shape.split(network), embedding(window.clamp(min=0), items)
        if shared is not None:
            found = sampled_losses(
                self.shape, arrays, own, window, embedding(shared, items), shared, len(items), lengths, kept
            )
            return found.sum(), found.detach()
        states = hidden(self.shape, arrays, own[:, :-1], lengths, kept)
        real = torch.arange(states.shape[1], device=states.device) < lengths[:, None]
        total, each = summed_loss(states[real], items, window[:, 1:][real])
        return total, torch.zeros_like(real, dtype=each.dtype).masked_scatter_(real, each).sum(1)

    @torch.no_grad()
    def scores(self, items: Tensor, network: Tensor, history: Tensor) -> Tensor:
        """Scores [c, m] of what comes next; zeros for an empty history."""
        arrays = self.shape.split(network)
        window, lengths = newest(history, self.length)
        scores = torch.zeros(len(history), len(items), device=items.device)
        for chosen, width in alike(lengths, PLACES[items.device.type]):
            part = window[chosen, :width].long().clamp(min=0)
            states = hidden(self.shape, arrays, items[part], lengths[chosen])
            newest_state = states[torch.arange(len(chosen), device=items.device), lengths[chosen] - 1]
            scores[chosen] = newest_state @ items.T
        return scores

    def about(self) -> dict[str, Any]:
        """What the result of a run says of the model."""
        return {"network_numbers": self.shape.numbers}
