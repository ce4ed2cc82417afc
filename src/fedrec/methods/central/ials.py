"""iALS: matrix factorisation of all cells, observed or not, by alternating least squares.

Hu, Koren, Volinsky, "Collaborative filtering for implicit feedback datasets", ICDM 2008, in the form of Rendle, Krichene,
Zhang, Koren, "Revisiting the performance of iALS on item recommendation benchmarks", RecSys 2022: every observed cell has
target 1 and weight 1, every cell target 0 and weight alpha, and the penalty grows with a row's frequency to the power nu.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fedrec.federation.cohorts import cut, size_order
from fedrec.federation.config import MethodConfig
from fedrec.federation.payload import State
from fedrec.federation.search import Options, Range, Space
from fedrec.federation.task import Task
from fedrec.methods.central.base import CentralMethod
from fedrec.methods.central.learning import embeddings
from fedrec.methods.central.observed import Observed

BLOCK = 1 << 22  # numbers gathered at a time


class IALSConfig(MethodConfig):
    """Settings of iALS."""

    space: ClassVar[Space] = {
        "dim": Options((32, 64, 128)),
        "alpha": Range(0.003, 3.0, log=True),
        "reg": Range(1e-4, 0.1, log=True),
        "nu": Range(0.0, 1.0),
    }

    dim: int = Field(64, ge=1)
    """Size of an embedding."""
    alpha: float = Field(0.1, gt=0)
    """Weight of every cell as a zero."""
    reg: float = Field(0.003, gt=0)
    """L2 penalty of a row, times (its cells and alpha times all cells) to the power ``nu``."""
    nu: float = Field(1.0, ge=0)
    """How the penalty grows with the frequency of a user or item; 0 is Hu et al."""
    init_std: float = Field(0.1, gt=0)
    """Standard deviation of the initial embeddings, divided by sqrt(dim)."""


class IALS(CentralMethod):
    """Users given items, then items given users, each a batch of small linear systems."""

    name = "ials"
    title = "centralised implicit alternating least squares"
    paper = "Hu et al. 2008; Rendle et al. 2022"
    Config = IALSConfig
    config: IALSConfig
    rounds = 20
    logits = False

    def start(self, data: Observed, task: Task) -> State:
        """Random vectors."""
        return embeddings(task, self.config.dim, self.config.init_std / self.config.dim**0.5)

    def epoch(self, state: State, data: Observed, task: Task, number: int) -> Tensor:
        """One sweep over users and one over items."""
        by_item = torch.argsort(data.pair_items, stable=True)
        item_counts = torch.bincount(data.pair_items, minlength=data.n_items)
        state["user"] = self._solve(state["item"], data.pair_items, data.counts)
        state["item"] = self._solve(state["user"], data.pair_users[by_item], item_counts)
        return torch.zeros(())

    def _solve(self, other: Tensor, partners: Tensor, counts: Tensor) -> Tensor:
        """Every row's best vector given the ``other`` side; ``partners`` lists each row's partners, row by row.

        (sum_partners q q' + alpha Q'Q + reg_row I) p = sum_partners q.
        """
        c, dim, device = self.config, other.shape[1], other.device
        starts = counts.cumsum(0) - counts
        order = size_order(counts)
        shared = c.alpha * (other.T @ other)
        penalty = c.reg * (counts + c.alpha * len(other)) ** c.nu
        solved = torch.empty(len(counts), dim, device=device)
        sizes = counts.cpu()[order]
        for part in cut(sizes, samples=max(1, BLOCK // dim), clients=max(1, BLOCK // dim**2)):
            rows = order[part].to(device)
            slots = torch.arange(max(1, int(sizes[part.start])), device=device)
            real = slots < counts[rows, None]
            position = (starts[rows, None] + slots).clamp_(max=max(0, len(partners) - 1))
            vectors = other[partners[position]] * real[..., None]
            systems = vectors.transpose(1, 2) @ vectors + shared
            systems.diagonal(dim1=1, dim2=2).add_(penalty[rows, None])
            solved[rows] = torch.linalg.solve(systems, vectors.sum(1))
        return solved

    def rate(self, ready: State, data: Observed, clients: Tensor) -> Tensor:
        """Dot products."""
        return ready["user"][clients] @ ready["item"].T
