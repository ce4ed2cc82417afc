"""Centralised matrix factorisation, the ceiling of FedMF.

Koren, Bell, Volinsky, "Matrix factorization techniques for recommender systems", Computer 2009. Trained on implicit
feedback in one of two ways: binary cross-entropy with sampled negatives (what federated papers mean by MF), or BPR
(Rendle et al., "BPR: Bayesian personalized ranking from implicit feedback", UAI 2009).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import embedding

from fedrec.federation.payload import State
from fedrec.federation.task import Task
from fedrec.methods.central.learning import (
    CentralConfig,
    LearnedMethod,
    embeddings,
    look_up,
    pairwise,
    penalty,
    pointwise,
)
from fedrec.methods.central.observed import Observed, Triple


class MFConfig(CentralConfig):
    """Settings of MF."""

    loss: Literal["bce", "bpr"] = "bce"
    """Cross-entropy on positives and ``negatives`` each, or pairs of a positive and one negative."""
    biases: bool = False
    """Add an item bias."""


class MF(LearnedMethod):
    """User vector times item vector."""

    name = "mf"
    title = "centralised matrix factorisation (BCE or BPR), the ceiling of FedMF"
    paper = "Koren et al. 2009; Rendle et al. 2009"
    Config = MFConfig
    config: MFConfig

    @property
    def negatives(self) -> int:
        """One for BPR."""
        return 1 if self.config.loss == "bpr" else int(self.config.negatives)

    @property
    def group(self) -> int:
        """BPR counts triples."""
        return 1 if self.config.loss == "bpr" else 1 + self.negatives

    def weights(self, data: Observed, task: Task) -> State:
        """Random vectors, no bias."""
        state = embeddings(task, self.config.dim, self.config.init_std)
        if self.config.biases:
            state["bias"] = torch.zeros(task.n_items, 1, device=task.device)
        return state

    def loss(self, params: State, data: Observed, batch: Triple) -> Tensor:
        """BCE or BPR, and the penalty."""
        user, positive, negative = rows = look_up(params["user"], params["item"], batch)
        if self.config.biases:  # a bias is one more dimension, in which all users have a 1
            bias = params["bias"]
            user = torch.cat([user, torch.ones_like(user[:, :1])], dim=1)
            positive = torch.cat([positive, embedding(batch[1], bias)], dim=1)
            negative = torch.cat([negative, embedding(batch[2], bias)], dim=2)
        if self.config.loss == "bpr":
            value = pairwise(user, positive, negative)
        else:
            value = pointwise((user * positive).sum(1), (negative @ user.unsqueeze(2)).squeeze(2))
        return value + penalty(self.config.reg, *rows)

    def rate(self, ready: State, data: Observed, clients: Tensor) -> Tensor:
        """Dot products."""
        scores = ready["user"][clients] @ ready["item"].T
        return scores + ready["bias"].T if self.config.biases else scores
