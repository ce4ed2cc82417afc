"""FedMF: matrix factorisation with private user vectors and a shared item table.

Chai, Wang, Chen, Yang, "Secure federated matrix factorization", IEEE Intelligent Systems 2020; Ammad-ud-din et al.,
"Federated collaborative filtering", arXiv 1901.09888, 2019. This is the baseline recommendation papers mean: score
p_u . q_i, binary cross-entropy on positives and sampled negatives (Eq. 2 of FedEM), and one of four aggregation rules.
"""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from fedrec.federation.config import LearnedConfig
from fedrec.federation.payload import Payload, State, tensor
from fedrec.federation.store import ClientState
from fedrec.federation.task import Task
from fedrec.federation.total import Total
from fedrec.local.adapters import MergingAdapter
from fedrec.local.factorisation import MatrixFactorisation
from fedrec.local.problem import LocalProblem
from fedrec.parts.aggregation import Rule
from fedrec.parts.scorers import dot
from fedrec.parts.table_method import AveragedTableMethod
from fedrec.sampling.samples import Samples


class FedMFConfig(LearnedConfig):
    """Settings of FedMF."""

    agg: Rule = "touched"
    """How the server combines row changes: sum (A), uniform or size (B), touched (C), change (D)."""
    user_init_std: float | None = Field(None, gt=0)
    """Standard deviation of the initial user vectors; by default ``init_std``."""
    common_init: bool = False
    """All clients start from the same user vector, as FedEM's released code does."""


class FedMF(AveragedTableMethod):
    """Private user vector, shared item table, dot product."""

    name = "fedmf"
    title = "matrix factorisation, private user vectors, averaged item table"
    paper = "Chai et al. 2020; Ammad-ud-din et al. 2019"
    private = "user vector (d)"
    uploaded = "changes of touched item rows"
    server_keeps = "item table (m x d)"
    Config = FedMFConfig
    config: FedMFConfig

    @property
    def rule(self) -> Rule:
        """One of the four."""
        return self.config.agg

    def client_state(self, task: Task, clients: Tensor) -> State:
        """Random user vectors."""
        std = self.config.user_init_std or self.config.init_std
        return {"user": task.client_normal(clients, self.config.dim, std=std, common=self.config.common_init)}

    def problem(self, round: int) -> LocalProblem:
        """Eq. 2 of FedEM."""
        return MatrixFactorisation()

    def through_merging(self, adapter: MergingAdapter, round: int) -> LocalProblem:
        """Adapters look through the same dot product, which is compiled."""
        return adapter

    def scores(self, task: Task, private: ClientState, payload: Payload) -> Tensor:
        """p_u . q_i with the newest table."""
        return dot(private["user"], tensor(payload, "items"))


class Local(FedMF):
    """No federation at all: the same model, but each client keeps its own item table and sends nothing."""

    name = "local"
    title = "no federation: every client trains its own user vector and item table"
    paper = ""
    private = "user vector (d), item table (m x d)"
    uploaded = "nothing"
    server_keeps = "nothing"

    def client_state(self, task: Task, clients: Tensor) -> State:
        """User vectors, and one common random item table, of which each client owns a copy."""
        table = task.normal(task.n_items, self.config.dim, std=self.config.init_std, generator=task.generator())
        return super().client_state(task, clients) | {"items": table.expand(len(clients), -1, -1)}

    def server_state(self, task: Task) -> State:
        """Nothing."""
        return {}

    def broadcast(self, task: Task, server: State, clients: Tensor) -> Payload:
        """Nothing."""
        return {}

    def train(
        self, task: Task, private: ClientState, payload: Payload, samples: Samples, round: int
    ) -> tuple[Payload, Tensor]:
        """The local phase of FedMF on the own table."""
        params = {"user": private["user"].clone(), "block": private.take("items", samples)}
        loss = self.fit(params, samples, round)
        private["user"] = params["user"]
        private.put("items", samples, params["block"])
        return {}, loss

    def step(self, task: Task, server: State, total: Total, round: int) -> State:
        """Nothing arrives."""
        return server

    def scores(self, task: Task, private: ClientState, payload: Payload) -> Tensor:
        """p_u . q_i with the own table."""
        return dot(private["user"], private["items"])
