"""LightGCN: embeddings smoothed over the graph of interactions.

He, Deng, Wang, Li, Zhang, Wang, "LightGCN: simplifying and powering graph convolution network for recommendation",
SIGIR 2020. E^{k+1} = D^{-1/2} A D^{-1/2} E^k (Eq. 7), the mean over layers 0..K scores by dot product (Eq. 4-5), BPR
with an L2 penalty on layer 0 (Eq. 15).
"""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import embedding, embedding_bag

from fedrec.federation.payload import State
from fedrec.federation.search import Range, Space
from fedrec.federation.task import Task
from fedrec.methods.central.learning import CentralConfig, LearnedMethod, embeddings, pairwise
from fedrec.methods.central.observed import Observed, Sampling, Triple


class LightGCNConfig(CentralConfig):
    """Settings of LightGCN; one negative per positive as in the paper."""

    space: ClassVar[Space] = {
        "lr": Range(3e-4, 0.03, log=True),
        "layers": Range(1, 4, whole=True),
        "reg": Range(1e-6, 0.1, log=True),
    }

    lr: float = Field(0.005, gt=0)
    """Learning rate of Adam."""
    batch_size: int = Field(2048, ge=1)
    """Triples in a batch; each batch pays a whole propagation."""
    negatives: int = Field(1, ge=1)
    """Drawn per training positive, anew every epoch."""
    reg: float = Field(1e-4, ge=0)
    """L2 penalty on the layer-0 embeddings of a batch, divided by its size."""
    layers: int = Field(3, ge=0)
    """Propagation steps K; 0 is BPR matrix factorisation."""
    sampling: Sampling = "interaction"
    """An epoch visits every interaction once, or as many triples of uniformly drawn users (the official code)."""


class Graph:
    """The symmetrically normalised graph of users and items, training edges only."""

    def __init__(self, data: Observed) -> None:
        """Neighbours of users, then of items, as one sparse matrix without self-loops."""
        self.nodes = data.n_users + data.n_items
        items = data.pair_items + data.n_users
        rows, columns = torch.cat([data.pair_users, items]), torch.cat([items, data.pair_users])
        order = torch.argsort(rows, stable=True)
        rows, self.columns = rows[order], columns[order]
        degree = torch.bincount(rows, minlength=self.nodes)
        self.begins = torch.cat([degree.new_zeros(1), degree.cumsum(0)])
        root = degree.clamp(min=1).rsqrt()
        self.values = root[rows] * root[self.columns]
        self.sparse = None
        if data.device.type == "cuda":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # "sparse CSR is in beta"
                shape = (self.nodes, self.nodes)
                self.sparse = torch.sparse_csr_tensor(
                    self.begins.int(), self.columns.int(), self.values, shape, check_invariants=False
                )

    def neighbours(self, table: Tensor) -> Tensor:
        """One propagation step of a table [n + m, d]."""
        if self.sparse is not None:
            return self.sparse @ table
        # On a CPU the embedding kernel is two to three times as fast as the sparse product.
        return embedding_bag(
            self.columns, table, self.begins, mode="sum", per_sample_weights=self.values, include_last_offset=True
        )

    def smooth(self, table: Tensor, layers: int) -> Tensor:
        """Mean over layers 0..K, with gradients."""
        result: Tensor = _Smooth.apply(table, self, layers)  # type: ignore[no-untyped-call]
        return result

    def mean_of_layers(self, table: Tensor, layers: int) -> Tensor:
        """Mean over layers 0..K."""
        layer = total = table
        for _ in range(layers):
            layer = self.neighbours(layer)
            total = total + layer
        return total / (layers + 1)


class _Smooth(torch.autograd.Function):
    """The mean over layers is a symmetric linear map, so its gradient is the same map of the gradient."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, graph: Graph, layers: int) -> Tensor:
        ctx.graph, ctx.layers = graph, layers
        return graph.mean_of_layers(table, layers)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return ctx.graph.mean_of_layers(grads[0].contiguous(), ctx.layers), None, None


class LightGCN(LearnedMethod):
    """User and item vectors, averaged over K steps through the graph."""

    name = "lightgcn"
    title = "centralised LightGCN: embeddings smoothed over the interaction graph, BPR"
    paper = "He et al. 2020"
    Config = LightGCNConfig
    config: LightGCNConfig
    rounds = 200

    @property
    def group(self) -> int:
        """A batch counts triples."""
        return 1

    @property
    def sampling(self) -> Sampling:
        """By interaction or by user."""
        return self.config.sampling

    def weights(self, data: Observed, task: Task) -> State:
        """Random layer 0."""
        return embeddings(task, self.config.dim, self.config.init_std)

    def smoothed(self, table: Tensor, data: Observed) -> Tensor:
        """Final vectors of users, then items."""
        return data.once("graph", Graph).smooth(table, self.config.layers) if self.config.layers else table

    def loss(self, params: State, data: Observed, batch: Triple) -> Tensor:
        """BPR on the final vectors, penalty on layer 0."""
        users, positives, negatives = batch
        table = torch.cat([params["user"], params["item"]])
        final = self.smoothed(table, data)
        # One look-up of all there is to look up: its gradient, a sum over equal rows, is what costs.
        nodes = torch.cat([users, positives + data.n_users, (negatives + data.n_users).flatten()])
        both = torch.cat([final, table], dim=1) if self.config.reg else final
        rows, *below = torch.split(embedding(nodes, both), table.shape[1], dim=1)
        user, positive, negative = torch.split(rows, [len(users), len(users), negatives.numel()])
        value = pairwise(user, positive, negative.view(*negatives.shape, -1))
        for part in below:
            value = value + self.config.reg / 2 / len(users) * part.square().sum()
        return value

    def prepare(self, state: State, data: Observed) -> State:
        """Smooth once per evaluation."""
        final = self.smoothed(torch.cat([state["user"], state["item"]]), data)
        return {"user": final[: data.n_users], "item": final[data.n_users :]}

    def rate(self, ready: State, data: Observed, clients: Tensor) -> Tensor:
        """Dot products of final vectors."""
        return embedding(clients, ready["user"]) @ ready["item"].T
