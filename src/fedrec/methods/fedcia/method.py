"""FedCIA: clients exchange item-item similarities instead of item parameters.

Han, Li, Xia, Liu, Gu, Zhang, Gu, Lu, "FedCIA: Federated Collaborative Information Aggregation for Privacy-Preserving
Recommendation", SIGIR 2025, arXiv 2504.14208. Every client keeps an own item table E_c, uploads its Gram matrix
E_c E_c', and moves E_c so that its Gram matrix comes closer to the mean of all. The spectral variant (GSP) has nothing
to train: clients upload a graph filter and score with the mean filter.
"""

from __future__ import annotations

import math
from typing import Any, Literal, Self

import torch
from pydantic import Field
from torch import Tensor

from fedrec.federation.payload import Gram, Part
from fedrec.local.fit import Memory
from fedrec.method import (
    Batch,
    ClientState,
    Derived,
    LearnedConfig,
    MethodConfig,
    Params,
    Payload,
    RowUpdate,
    Samples,
    State,
    Step,
    SumMethod,
    Table,
    Task,
    Total,
    Upload,
    broadcast,
    dot,
    fit,
    lookup,
    tensor,
)
from fedrec.methods.fedcia.alignment import Distance, alignment, eigenpairs, gram_product
from fedrec.methods.fedcia.graph_filter import low_pass, normalised
from fedrec.sampling import streams

MOMENTS = ("first", "second")
OVERSAMPLING = 16
"""Random directions of a sketch beside the eigenvectors of the last round."""


class FedCIAConfig(LearnedConfig):
    """Settings of FedCIA."""

    variant: Literal["parametric", "gsp"] = "parametric"
    """Item tables aligned over rounds, or graph filters exchanged once."""
    epochs: int = Field(1, ge=1)
    batch_size: int = Field(4096, ge=1)
    lr: float = Field(0.01, gt=0)
    loss: Literal["bce_dot", "elementwise_mse"] = "bce_dot"
    """Cross-entropy of p . q, or the released code's squared error that asks each p_k q_k to be the label."""
    weight_decay: float = Field(1e-3, ge=0)
    """Half the weight of squared norms in the loss, and the decay of alignment steps."""
    negatives_once: bool = False
    """Draw negatives once and keep them, as the released code does, instead of every round."""
    fresh_optimizer: bool = False
    """Forget Adam's state between rounds."""
    align: Distance = "norm"
    """Distance of E E' to G: the Frobenius norm (code), or the mean squared error (paper)."""
    align_steps: int = Field(100, ge=0)
    """Steps of the alignment per round."""
    agg_lr: float = Field(0.1, gt=0)
    """Learning rate of the alignment."""
    rank: int | None = Field(256, ge=1)
    """Eigenpairs of G the server computes and sends; none: all m, without any approximation."""
    fast_com: bool = False
    """Upload the rank-d form of the Gram matrix (m x d) instead of its m x m entries."""
    noise: float = Field(0.0, ge=0)
    """Scale b of Laplace(0, b) noise per entry and client, added as its mean's normal limit N(0, 2 b^2 / C) to G."""
    evaluate_before: bool = False
    """Report scores before alignment, too."""
    filter_rank: int = Field(32, ge=1)
    """gsp: singular vectors k of the ideal filter, at most the rank of the client's interactions."""
    filter_weight: float = Field(0.3, ge=0)
    """gsp: weight w_p of the ideal filter."""
    agg_p: float = Field(60.0, ge=0)
    """gsp: weight of the mean filter in the score."""


class FedCIA(SumMethod):
    """The parametric variant: matrix factorisation with aligned private item tables."""

    name = "fedcia"
    title = "own item tables, aligned by the mean item-item similarity of all clients"
    paper = "Han et al., SIGIR 2025"
    private = "user vector (d), item table (m x d), Adam's state of both"
    uploaded = "Gram matrix of the item table (m x m), or its rank-d form (m x d)"
    server_keeps = "k eigenpairs of the mean Gram matrix (m x k)"
    Config = FedCIAConfig
    config: FedCIAConfig

    @classmethod
    def kind_for(cls, config: MethodConfig) -> type[Self]:
        """The spectral variant shares the settings but hardly an arrow, so it is a class of its own."""
        kind: Any = Spectral if isinstance(config, FedCIAConfig) and config.variant == "gsp" else cls
        chosen: type[Self] = kind
        return chosen

    @property
    def keeps_adam(self) -> bool:
        """Whether clients keep the optimiser's state between rounds."""
        return self.config.optimizer == "adam" and not self.config.fresh_optimizer

    @property
    def views(self) -> tuple[str, ...]:
        """Scores with the tables as trained, if asked for."""
        return ("before_alignment",) if self.config.evaluate_before else ()

    def sampling_round(self, round: int) -> int:
        """Negatives of this round, or always those of the first."""
        return 0 if self.config.negatives_once else round

    def server_state(self, task: Task) -> State:
        """No similarities yet."""
        vectors = torch.zeros(task.n_items, 0, device=task.device)
        return {"vectors": vectors, "values": torch.zeros(0, device=task.device)} | self._directions(task, vectors, 0)

    def client_state(self, task: Task, clients: Tensor) -> State:
        """User vectors, a copy of one common item table, and Adam's state of both."""
        c = self.config
        items = task.item_table(c.dim, c.init_std)
        state = {
            "user": task.client_normal(clients, c.dim, std=c.init_std),
            "items": items.expand(len(clients), -1, -1),
        }
        if self.keeps_adam:
            for name in ("user", "items"):
                state |= {
                    f"{name}.{moment}": torch.zeros_like(state[name][:1]).expand_as(state[name]) for moment in MOMENTS
                }
            state["steps"] = torch.zeros(len(clients), dtype=torch.float64, device=task.device)
        return state

    def broadcast(self, task: Task, server: State, clients: Tensor) -> Payload:
        """G = V diag(l) V' as eigenpairs, from the second round on, and the directions of this round's sketch."""
        payload: Payload = {}
        if len(server["values"]):
            payload = {name: broadcast(server[name], len(clients)) for name in ("vectors", "values")}
        if "directions" in server:  # random numbers of the round beside the vectors: every client can draw them
            payload["directions"] = Derived(broadcast(server["directions"], len(clients)))
        return payload

    def _alignment(self, items: Tensor, payload: Payload) -> tuple[Tensor, Tensor, Tensor]:
        c = self.config
        vectors, values = tensor(payload, "vectors")[0], tensor(payload, "values")[0]
        within, along = alignment(
            items, vectors, values,
            steps=c.align_steps, lr=c.agg_lr, weight_decay=c.weight_decay, distance=c.align,
        )  # fmt: skip
        return vectors, within, along

    def privacy_problem(self) -> str | None:
        """The own table is never known to the server, so there is nothing to measure a change against."""
        return "its tables cannot be clipped; use the setting noise instead"

    def train(
        self, task: Task, private: ClientState, payload: Payload, samples: Samples, round: int
    ) -> tuple[Payload, Tensor]:
        """Align the own table with the downloaded G, then train on own data; upload the new Gram matrix."""
        c = self.config
        if "vectors" in payload:
            vectors, within, along = self._alignment(private["items"], payload)
            private["items"] = private["items"] @ within + vectors @ along
        params = {"user": private["user"].clone(), "items": private.take("items", samples)}
        memory = None
        if self.keeps_adam:
            first, second = (
                {"user": private[f"user.{moment}"].clone(), "items": private.take(f"items.{moment}", samples)}
                for moment in MOMENTS
            )
            memory = Memory(first, second, private["steps"].clone())
        loss = fit(params, self._loss, samples, c.schedule, [Step(("user", "items"), c.lr, c.optimizer)], memory)
        private["user"] = params["user"]
        private.put("items", samples, params["items"])
        if memory is not None:
            for name, moment in zip(MOMENTS, (memory.first, memory.second), strict=True):
                private[f"user.{name}"] = moment["user"]
                private.put(f"items.{name}", samples, moment["items"])
            private["steps"] = memory.taken
        items = private["items"]
        test = tensor(payload, "directions")[0] if "directions" in payload else None
        return {"items": Gram(items, test=test, whole=not c.fast_com)}, loss

    def _loss(self, params: Params, batch: Batch) -> Tensor:
        """Data term, and wd/2 (||p||^2 + ||q+||^2 + sum ||q-||^2) as a mean over positives."""
        c = self.config
        rows, user = lookup(params["items"], batch.slots), params["user"]
        norms = (1 + c.negatives) * batch.mean(rows.square().sum(2)) + user.square().sum(1)
        penalty = 0.5 * c.weight_decay * norms
        if c.loss == "bce_dot":
            return batch.bce((rows @ user.unsqueeze(2)).squeeze(2)) + penalty
        errors = (user[:, None] * rows - batch.labels[..., None]).square().mean(2)
        for_label = [torch.where(batch.mask & (batch.labels == label), 1.0, 0.0) for label in (0, 1)]
        means = [(errors * chosen).sum(1) / chosen.sum(1).clamp(min=1) for chosen in for_label]
        return 0.5 * (means[0] + means[1]) + penalty

    @property
    def adds_noise(self) -> bool:
        """Where noise is asked for."""
        return self.config.noise > 0

    def contribute(self, task: Task, upload: Upload, total: Total) -> None:
        """The sum of E_c E_c', or of its products with the directions of the sketch."""
        part = upload.parts["items"]
        total.add("gram", gram_product(_factor(part), part.test if isinstance(part, Gram) else None))
        total.add("clients", len(upload.clients))

    def step(self, task: Task, server: State, total: Total, round: int) -> State:
        """G = mean of E_c E_c', kept as its leading eigenpairs."""
        if not total:
            return server
        clients, rank = int(total["clients"]), min(self.config.rank or task.n_items, task.n_items)
        noise = self._noise(task, clients, round)
        vectors, values = eigenpairs(total["gram"].double() / clients, server.get("directions"), rank, noise)
        return {"vectors": vectors, "values": values} | self._directions(task, vectors, round + 1)

    def _directions(self, task: Task, known: Tensor, round: int) -> State:
        """Orthonormal columns to sketch the coming G with: the eigenvectors of the last round, and random ones."""
        m = task.n_items
        rank = min(self.config.rank or m, m)
        if self.config.noise > 0 or rank + OVERSAMPLING >= m:
            return {}  # a sketch of as many columns as items, or of a noisy matrix that need not be positive, has no use
        new = rank + OVERSAMPLING - known.shape[1]
        random = streams.normal(task.common_key(streams.Purpose.OTHER, round), torch.arange(m * new)).view(m, new)
        return {"directions": torch.linalg.qr(torch.cat([known, random.float().to(known.device)], 1))[0]}

    def _noise(self, task: Task, clients: int, round: int) -> Tensor | None:
        """N(0, 2 b^2 / C) per entry: what the mean of C Laplace(0, b) draws is close to."""
        if not self.config.noise:
            return None
        m = task.n_items
        drawn = streams.normal(task.common_key(streams.Purpose.NOISE, round), torch.arange(m * m)).view(m, m)
        return drawn.to(task.device) * (self.config.noise * math.sqrt(2 / clients))

    def scores(self, task: Task, private: ClientState, payload: Payload) -> Tensor:
        """p_u . q_i with the table after alignment."""
        user, items = private["user"], private["items"]
        if "vectors" not in payload:
            return dot(user, items)
        vectors, within, along = self._alignment(items, payload)
        columns = user.unsqueeze(2)
        return dot((within @ columns).squeeze(2), items) + (along @ columns).squeeze(2) @ vectors.T

    def view_scores(self, task: Task, view: str, private: ClientState, payload: Payload) -> Tensor:
        """p_u . q_i with the table as trained."""
        return dot(private["user"], private["items"])


class Spectral(FedCIA):
    """The parameter-free variant: one round, F_c = R~' R~ + w_p V V', score X_c F_c + agg_p X_c F.

    With one user per client D_I is 1 on the client's items, so that the ideal filter D_I^-1/2 V V' D_I^1/2 is V V'.
    """

    rounds = 1
    logits = False

    @property
    def negatives(self) -> int:
        """None are needed."""
        return 0

    @property
    def views(self) -> tuple[str, ...]:
        """Only one way to score."""
        return ()

    def server_state(self, task: Task) -> State:
        """The mean filter, still empty."""
        return {"filter": torch.zeros(task.n_items, task.n_items, device=task.device)}

    def client_state(self, task: Task, clients: Tensor) -> State:
        """Which items the client has, known once it takes part."""
        return {"own": torch.zeros(len(clients), task.n_items, dtype=torch.bool, device=task.device)}

    def broadcast(self, task: Task, server: State, clients: Tensor) -> Payload:
        """The mean filter."""
        return {"filter": broadcast(server["filter"], len(clients))}

    def _factor(self, own: Tensor) -> Tensor:
        """[c, m, 2], a factor of F_c = R~' R~ + w_p V V'."""
        matrix = normalised(own[:, None].float())
        ideal = math.sqrt(self.config.filter_weight) * low_pass(matrix, self.config.filter_rank)
        return torch.cat([matrix, ideal], 1).mT

    def train(
        self, task: Task, private: ClientState, payload: Payload, samples: Samples, round: int
    ) -> tuple[Payload, Tensor]:
        """Nothing to train: build the filter from the own items."""
        ones = torch.ones(*samples.rows.shape, 1, device=samples.rows.device)
        n_items = tensor(payload, "filter").shape[1]
        own = RowUpdate(samples.rows, samples.row_counts, ones, n_items).dense()[..., 0] > 0
        private["own"] = own
        factor = self._factor(own)
        rows = factor.gather(1, samples.rows.long()[..., None].expand(-1, -1, 2))
        sparse = RowUpdate(samples.rows, samples.row_counts, rows, n_items)
        return {"items": sparse if self.config.fast_com else Gram(factor)}, torch.zeros(len(private))

    def step(self, task: Task, server: State, total: Total, round: int) -> State:
        """F = mean of F_c."""
        if not total:
            return server
        found = total["gram"] / int(total["clients"])
        noise = self._noise(task, int(total["clients"]), round)
        return {"filter": found if noise is None else found + noise.float()}

    def scores(self, task: Task, private: ClientState, payload: Payload) -> Tensor:
        """X_c F_c + agg_p X_c F."""
        own = private["own"]
        factor = self._factor(own)
        alone = (factor @ (factor.mT @ own[..., None].float())).squeeze(2)
        return alone + self.config.agg_p * (own.float() @ tensor(payload, "filter")[0])


def _factor(part: Part) -> Tensor:
    """The tables [c, m, .] whose Gram matrices were uploaded."""
    if isinstance(part, Table):
        return part.value
    assert isinstance(part, RowUpdate)
    return part.dense()
