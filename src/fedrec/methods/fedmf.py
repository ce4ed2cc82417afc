"""FedMF: matrix factorisation with private user vectors and a shared item table.

Chai, Wang, Chen, Yang, "Secure federated matrix factorization", IEEE Intelligent Systems 2020; Ammad-ud-din et al.,
"Federated collaborative filtering", arXiv 1901.09888, 2019. This is the baseline recommendation papers mean: score
p_u . q_i, binary cross-entropy on positives and sampled negatives (Eq. 2 of FedEM), and one of four aggregation rules.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from torch import Tensor

from fedrec.federation.search import Range, Space
from fedrec.method import (
    AveragedTableMethod,
    ClientState,
    LearnedConfig,
    LocalProblem,
    MatrixFactorisation,
    Payload,
    Rule,
    Samples,
    State,
    Step,
    SumMethod,
    Task,
    Total,
    Upload,
    dot,
    tensor,
)


class FedMFConfig(LearnedConfig):
    """Settings of FedMF."""

    space: ClassVar[Space] = {
        "lr": Range(1e-3, 0.3, log=True),
        "epochs": Range(1, 10, whole=True),
        "init_std": Range(0.003, 1.0, log=True),
    }

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

    def scores(self, task: Task, private: ClientState, payload: Payload) -> Tensor:
        """p_u . q_i with the newest table."""
        return dot(private["user"], tensor(payload, "items"))


class Local(SumMethod):
    """No federation at all: FedMF's model, but each client keeps its own item table and sends nothing."""

    name = "local"
    title = "no federation: every client trains its own user vector and item table"
    private = "user vector (d), item table (m x d)"
    sees = "nothing"
    silent = True
    Config = FedMFConfig
    config: FedMFConfig

    def server_state(self, task: Task) -> State:
        """Nothing."""
        return {}

    def client_state(self, task: Task, clients: Tensor) -> State:
        """FedMF's user vectors, and its item table, of which each client owns a copy."""
        fedmf = FedMF(self.config)
        table = fedmf.server_state(task)["items"]
        return fedmf.client_state(task, clients) | {"items": table.expand(len(clients), -1, -1)}

    def broadcast(self, task: Task, server: State, clients: Tensor) -> Payload:
        """Nothing."""
        return {}

    def train(
        self, task: Task, private: ClientState, payload: Payload, samples: Samples, round: int
    ) -> tuple[Payload, Tensor]:
        """The local phase of FedMF on the own table."""
        params = {"user": private["user"].clone(), "block": private.take("items", samples)}
        steps = [Step(("user", "block"), self.config.lr, self.config.optimizer)]
        loss = MatrixFactorisation().train(params, samples, self.config.schedule, steps)
        private["user"] = params["user"]
        private.put("items", samples, params["block"])
        return {}, loss

    def contribute(self, task: Task, upload: Upload, total: Total) -> None:
        """Nobody sends anything."""

    def step(self, task: Task, server: State, total: Total, round: int) -> State:
        """Nothing arrives."""
        return server

    def scores(self, task: Task, private: ClientState, payload: Payload) -> Tensor:
        """p_u . q_i with the own table."""
        return dot(private["user"], private["items"])
