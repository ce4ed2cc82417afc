"""FedNCF: federated neural collaborative filtering.

Perifanis and Efraimidis, "Federated Neural Collaborative Filtering", Knowledge-Based Systems 242, 2022 (arXiv
2106.04405). Private user vectors; item tables and the scoring network are shared. Three scorers, with p, q of size d:

    gmf:    h . (p (.) q)          mlp:    h . ReLU layers(concat(p, q))
    neumf:  h . concat(p^G (.) q^G, ReLU layers(concat(p^M, q^M)))

MF-FedAvg: an item row is averaged over the clients that touched it, the network over all with weights n_k / sum n.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from fedrec.local.mlp import uniform, xavier
from fedrec.local.pair_network import PairNetwork
from fedrec.method import (
    AveragedTableMethod,
    ClientState,
    LearnedConfig,
    LocalProblem,
    Payload,
    Rule,
    State,
    Task,
    Width,
    tensor,
)
from fedrec.parts.aggregation import NetworkRule
from fedrec.parts.scorers import by_chunks


class FedNCFConfig(LearnedConfig):
    """Settings of FedNCF."""

    epochs: int = Field(2, ge=1)
    variant: Literal["gmf", "mlp", "neumf"] = "neumf"
    """Scorer: weighted dot product, perceptron, or both side by side with an item table each."""
    tower: tuple[Width, ...] | None = None
    """Widths of the perceptron from 2 dim on; by default 2d, 4d, 2d, d, d/2. A last 1 (the output) may be left out."""
    agg: Rule = "touched"
    """Item rows: touched (C, MF-FedAvg), uniform or size (B, plain FedAvg), sum (A), change (D)."""
    network_agg: NetworkRule = "size"
    """Network: mean weighted by training positives, or uniform."""
    network_decay: float = Field(0.0, ge=0)
    """Weight decay on the network, added to the loss as decay / 2 times its squared norm; FedCA's code uses 0.001."""
    user_init_std: float | None = Field(None, gt=0)
    """Standard deviation of the initial user vectors; by default ``init_std``."""
    common_init: bool = False
    """All clients start from the same user vector, as in the code that FedEM and FedCA share."""

    @model_validator(mode="after")
    def _fitting_tower(self) -> FedNCFConfig:
        if self.tower is None:
            return self
        if self.variant == "gmf":
            raise ValueError("variant=gmf has no tower; drop tower or choose mlp or neumf")
        if self.tower[:1] != (2 * self.dim,) or len(self.widths) < 2 or min(self.tower) < 1:
            raise ValueError(
                f"tower {list(self.tower)} does not fit dim = {self.dim}; "
                f"start at {2 * self.dim} and add at least one positive width"
            )
        return self

    @property
    def widths(self) -> tuple[int, ...]:
        """Layers of the perceptron up to its last hidden units."""
        d = self.dim
        tower = self.tower or (2 * d, 4 * d, 2 * d, d, max(1, d // 2))
        return tower[:-1] if self.tower and tower[-1] == 1 else tower


class FedNCF(AveragedTableMethod):
    """Private user vectors, shared item tables and network. Both tables of neumf lie side by side in one of 2d columns."""

    name = "fedncf"
    title = "neural collaborative filtering, private user vectors, shared item tables and network"
    paper = "Perifanis and Efraimidis 2022"
    private = "user vector (d; 2d for neumf)"
    uploaded = "changes of touched item rows (d; 2d for neumf) and of the network (4,881 numbers at d = 16)"
    server_keeps = "item table (m x d; m x 2d for neumf), network"
    Config = FedNCFConfig
    config: FedNCFConfig
    shared_names = ("network",)

    @property
    def rule(self) -> Rule:
        """MF-FedAvg, or another one."""
        return self.config.agg

    @property
    def network_rule(self) -> NetworkRule:
        """Weights of the clients' networks."""
        return self.config.network_agg

    @property
    def table_dim(self) -> int:
        """Columns of the table."""
        return int(self.config.dim) * (2 if self.config.variant == "neumf" else 1)

    @property
    def matching(self) -> PairNetwork:
        """The network on user vectors and rows."""
        c = self.config
        product = 0 if c.variant == "mlp" else c.dim
        return PairNetwork(() if c.variant == "gmf" else c.widths, product, c.network_decay)

    @property
    def pieces(self) -> list[int]:
        """Lengths in the flat network: perceptron, then the output layer for the product, for the perceptron, its bias."""
        return self.matching.pieces

    def server_state(self, task: Task) -> State:
        """Random item table, Xavier weights and zero biases."""
        rng = task.generator()
        items = task.normal(task.n_items, self.table_dim, std=self.config.init_std, generator=rng)
        tower = self.matching.tower
        layers = [] if tower is None else [tower.draw(xavier, rng)]
        n = sum(self.pieces[1:3])
        network = torch.cat([*layers, uniform(n, xavier(n, 1), rng), torch.zeros(1)])
        return {"items": items, "network": network.to(task.device)}

    def client_state(self, task: Task, clients: Tensor) -> State:
        """Random user vectors."""
        std = self.config.user_init_std or self.config.init_std
        return {"user": task.client_normal(clients, self.table_dim, std=std, common=self.config.common_init)}

    def problem(self, round: int) -> LocalProblem:
        """Mean binary cross-entropy, and the decay of the network."""
        return self.matching

    def pair_scores(self, user: Tensor, network: Tensor, rows: Tensor) -> Tensor:
        """Logits [c, b] of ``rows`` [c, b, table_dim], differentiable."""
        return self.matching.logits(user, network, rows)

    def scores(self, task: Task, private: ClientState, payload: Payload) -> Tensor:
        """Logits of all items."""
        return by_chunks(self.pair_scores, tensor(payload, "items"), private["user"], tensor(payload, "network"))
