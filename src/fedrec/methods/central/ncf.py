"""Centralised neural matrix factorisation, the ceiling of FedNCF.

He, Liao, Zhang, Nie, Hu, Chua, "Neural collaborative filtering", WWW 2017 (NeuMF, section 3.4): a product of one pair
of embeddings and a tower on another pair, joined by one output layer. No pre-training.
"""

from __future__ import annotations

import math

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import embedding, linear, relu

from fedrec.federation.config import Width
from fedrec.federation.payload import State
from fedrec.federation.task import Task
from fedrec.methods.central.learning import CentralConfig, LearnedMethod, pointwise
from fedrec.methods.central.observed import Observed, Triple

BLOCK = 1 << 18  # pairs of user and item scored at a time: bounds the activations of the tower


class NCFConfig(CentralConfig):
    """Settings of NCF. ``reg`` is 0 in paper and code; ``init_std`` is that of the code."""

    init_std: float = Field(0.01, gt=0)
    """Standard deviation of the initial embeddings."""
    tower: tuple[Width, ...] = (64, 32, 16, 8)
    """Widths of the hidden layers on top of the two concatenated embeddings."""


class NCF(LearnedMethod):
    """NeuMF: generalised matrix factorisation beside a multi-layer perceptron."""

    name = "ncf"
    title = "centralised NeuMF (product and tower), the ceiling of FedNCF"
    paper = "He et al. 2017"
    Config = NCFConfig
    config: NCFConfig

    def weights(self, data: Observed, task: Task) -> State:
        """Normal embeddings, Glorot tower, LeCun-uniform output (as the authors' code)."""
        c, generator = self.config, task.generator()

        def table(rows: int) -> Tensor:
            return task.normal(rows, c.dim, std=c.init_std, generator=generator)

        def uniform(rows: int, columns: int, limit: float) -> Tensor:
            return ((torch.rand(rows, columns, generator=generator) * 2 - 1) * limit).to(task.device)

        state = {"product_user": table(task.n_clients), "product_item": table(task.n_items)}
        state |= {"tower_user": table(task.n_clients), "tower_item": table(task.n_items)}
        width = 2 * c.dim
        for layer, size in enumerate(c.tower):
            state[f"layer{layer}"] = uniform(size, width, math.sqrt(6 / (size + width)))
            state[f"offset{layer}"] = torch.zeros(size, device=task.device)
            width = size
        state["output"] = uniform(1, c.dim + width, math.sqrt(3 / (c.dim + width)))
        state["output_offset"] = torch.zeros(1, device=task.device)
        return state

    def logits_of(self, p: State, users: Tensor, items: Tensor) -> Tensor:
        """Logits of users [b, 1] and items [b or 1, k], which broadcast against each other."""
        dim = self.config.dim
        product = embedding(users, p["product_user"]) * embedding(items, p["product_item"])
        if not self.config.tower:
            user, item = embedding(users, p["tower_user"]), embedding(items, p["tower_item"])
            hidden = torch.cat([user.expand_as(product), item.expand_as(product)], dim=-1)
        else:  # the first layer by halves: each user and each item passes it once, not once per pair
            left, right = p["layer0"][:, :dim], p["layer0"][:, dim:]
            hidden = linear(embedding(users, p["tower_user"]), left, p["offset0"])
            hidden = relu(hidden + linear(embedding(items, p["tower_item"]), right))
        for layer in range(1, len(self.config.tower)):
            hidden = relu(linear(hidden, p[f"layer{layer}"], p[f"offset{layer}"]))
        out = product @ p["output"][0, :dim] + hidden @ p["output"][0, dim:]
        return out + p["output_offset"]

    def loss(self, params: State, data: Observed, batch: Triple) -> Tensor:
        """Binary cross-entropy (Eq. 7)."""
        users, positives, negatives = batch
        logits = self.logits_of(params, users[:, None], torch.cat([positives[:, None], negatives], dim=1))
        value = pointwise(logits[:, 0], logits[:, 1:])
        if self.config.reg:
            tables = ("product_user", "tower_user", "product_item", "tower_item")
            rows = [embedding(users if name.endswith("user") else positives, params[name]) for name in tables]
            value = value + self.config.reg / 2 / len(users) * sum(row.square().sum() for row in rows)
        return value

    def rate(self, ready: State, data: Observed, clients: Tensor) -> Tensor:
        """Logits of all items, a few users at a time."""
        items = torch.arange(data.n_items, device=data.device)[None]
        blocks = torch.split(clients, max(1, BLOCK // data.n_items))
        return torch.cat([self.logits_of(ready, part[:, None], items) for part in blocks])
