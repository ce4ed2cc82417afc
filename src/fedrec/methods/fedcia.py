"""FedCIA: clients exchange item-item similarities instead of item parameters.

Han, Li, Xia, Liu, Gu, Zhang, Gu, Lu, "FedCIA: Federated Collaborative Information Aggregation for Privacy-Preserving
Recommendation", SIGIR 2025, arXiv 2504.14208. Every client keeps an own item table E_c, uploads its Gram matrix
E_c E_c', and moves E_c so that its Gram matrix comes closer to the mean of all. The spectral variant (GSP) has nothing
to train: clients upload a graph filter and score with the mean filter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal, Self

import torch
from pydantic import Field
from torch import Tensor

from fedrec.federation.method import LearnedConfig, Method, MethodConfig, Task
from fedrec.federation.payload import Gram, Payload, RowUpdate, State, Table, Upload, tensor
from fedrec.federation.store import ClientState
from fedrec.local.fit import Batch, Memory, Params, Step, fit, lookup
from fedrec.parts.alignment import Distance, GramMean, alignment
from fedrec.parts.graph_filter import low_pass, normalised
from fedrec.parts.scorers import broadcast, dot
from fedrec.sampling import streams
from fedrec.sampling.samples import Samples

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


class FedCIA(Method):
    """The parametric variant: matrix factorisation with aligned private item tables."""

    name = "fedcia"
    title = "own item tables, aligned by the mean item-item similarity of all clients"
    paper = "Han et al., SIGIR 2025"
    private = "user vector (d), item table (m x d), Adam's state of both"
    uploaded = "Gram matrix of the item table (m x m), or its rank-d form (m x d)"
    server_keeps = "k eigenpairs of the mean Gram matrix (m x k)"
    Config = FedCIAConfig

    def __new__(cls, config: MethodConfig | None = None, **options: Any) -> Self:
        """The spectral variant shares the settings but no arrow, so it is a class of its own."""
        variant = options.get("variant") if config is None else getattr(config, "variant", None)
        chosen: Any = Spectral if variant == "gsp" else cls
        made: Self = super().__new__(chosen)
        return made

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
        return {
            "vectors": torch.zeros(task.n_items, 0, device=task.device),
            "values": torch.zeros(0, device=task.device),
            "seed": torch.tensor([task.seed]),
        }

    def client_state(self, task: Task, clients: Tensor) -> State:
        """User vectors, a copy of one common item table, and Adam's state of both."""
        c = self.config
        items = task.normal(task.n_items, c.dim, std=c.init_std, generator=task.generator())
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

    def broadcast(self, server: State, clients: Tensor) -> Payload:
        """G = V diag(l) V' as eigenpairs, from the second round on."""
        if not len(server["values"]):
            return {}
        return {name: broadcast(server[name], len(clients)) for name in ("vectors", "values")}

    def _alignment(self, items: Tensor, payload: Payload) -> tuple[Tensor, Tensor, Tensor]:
        c = self.config
        vectors, values = tensor(payload, "vectors")[0], tensor(payload, "values")[0]
        options = {"steps": c.align_steps, "lr": c.agg_lr, "weight_decay": c.weight_decay}
        return vectors, *alignment(items, vectors, values, distance=c.align, **options)

    def privacy_problem(self) -> str | None:
        """The own table is never known to the server, so there is nothing to measure a change against."""
        return "its tables cannot be clipped; use the setting noise instead"

    def train(self, clients: ClientState, payload: Payload, samples: Samples, round: int) -> tuple[Payload, Tensor]:
        """Align the own table with the downloaded G, then train on own data; upload the new Gram matrix."""
        c = self.config
        if payload:
            vectors, within, along = self._alignment(clients["items"], payload)
            clients["items"] = clients["items"] @ within + vectors @ along
        params = {"user": clients["user"].clone(), "items": clients.take("items", samples)}
        memory = None
        if self.keeps_adam:
            first, second = (
                {"user": clients[f"user.{moment}"].clone(), "items": clients.take(f"items.{moment}", samples)}
                for moment in MOMENTS
            )
            memory = Memory(first, second, clients["steps"].clone())
        loss = fit(params, self._loss, samples, c.schedule, [Step(("user", "items"), c.lr, c.optimizer)], memory)
        clients["user"] = params["user"]
        clients.put("items", samples, params["items"])
        if memory is not None:
            for name, moment in zip(MOMENTS, (memory.first, memory.second), strict=True):
                clients[f"user.{name}"] = moment["user"]
                clients.put(f"items.{name}", samples, moment["items"])
            clients["steps"] = memory.taken
        items = clients["items"]
        return {"items": Table(items) if c.fast_com else Gram(items)}, loss

    def _loss(self, params: Params, batch: Batch) -> Tensor:
        """Data term, and wd/2 (||p||^2 + ||q+||^2 + sum ||q-||^2) as a mean over positives."""
        c: FedCIAConfig = self.config
        rows, user = lookup(params["items"], batch.slots), params["user"]
        norms = (1 + c.negatives) * batch.mean(rows.square().sum(2)) + user.square().sum(1)
        penalty = 0.5 * c.weight_decay * norms
        if c.loss == "bce_dot":
            return batch.bce((rows @ user.unsqueeze(2)).squeeze(2)) + penalty
        errors = (user[:, None] * rows - batch.labels[..., None]).square().mean(2)
        for_label = [torch.where(batch.mask & (batch.labels == label), 1.0, 0.0) for label in (0, 1)]
        means = [(errors * chosen).sum(1) / chosen.sum(1).clamp(min=1) for chosen in for_label]
        return 0.5 * (means[0] + means[1]) + penalty

    def aggregate(self, server: State, uploads: Iterable[Upload], round: int) -> State:
        """G = mean of E_c E_c', kept as its leading eigenpairs."""
        m = len(server["vectors"])
        rank = min(self.config.rank or m, m)
        # A sketch of as many columns as items, or of a noisy matrix that need not be positive, has no use.
        whole = self.config.noise > 0 or rank + OVERSAMPLING >= m
        mean = GramMean(m, None if whole else self._directions(server, round, rank), server["vectors"].device)
        for upload in uploads:
            mean.add(_factor(upload))
        if not mean.clients:
            return server
        vectors, values = mean.eigenpairs(rank, self._noise(server, mean, round))
        return server | {"vectors": vectors, "values": values}

    def _directions(self, server: State, round: int, rank: int) -> Tensor:
        """Orthonormal columns to sketch G with: the eigenvectors of the last round, and random ones."""
        known = server["vectors"]
        m, new = len(known), rank + OVERSAMPLING - known.shape[1]
        keys = streams.keys(int(server["seed"]), streams.Purpose.OTHER, round, torch.zeros(1, dtype=torch.int64))
        random = streams.normal(keys, torch.arange(m * new)).view(m, new).float()
        columns: Tensor = torch.linalg.qr(torch.cat([known, random.to(known.device)], 1))[0]
        return columns

    def _noise(self, server: State, mean: GramMean, round: int) -> Tensor | None:
        """N(0, 2 b^2 / C) per entry: what the mean of C Laplace(0, b) draws is close to."""
        if not self.config.noise:
            return None
        m = len(mean.total)
        keys = streams.keys(int(server["seed"]), streams.Purpose.NOISE, round, torch.zeros(1, dtype=torch.int64))
        drawn = streams.normal(keys, torch.arange(m * m)).view(m, m)
        scale: float = self.config.noise * math.sqrt(2 / mean.clients)
        return drawn.to(mean.total.device) * scale

    def scores(self, clients: ClientState, payload: Payload) -> Tensor:
        """p_u . q_i with the table after alignment."""
        user, items = clients["user"], clients["items"]
        if not payload:
            return dot(user, items)
        vectors, within, along = self._alignment(items, payload)
        columns = user.unsqueeze(2)
        return dot((within @ columns).squeeze(2), items) + (along @ columns).squeeze(2) @ vectors.T

    def view_scores(self, view: str, clients: ClientState, payload: Payload) -> Tensor:
        """p_u . q_i with the table as trained."""
        return dot(clients["user"], clients["items"])


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
        return {
            "filter": torch.zeros(task.n_items, task.n_items, device=task.device),
            "seed": torch.tensor([task.seed]),
        }

    def client_state(self, task: Task, clients: Tensor) -> State:
        """Which items the client has, known once it takes part."""
        return {"own": torch.zeros(len(clients), task.n_items, dtype=torch.bool, device=task.device)}

    def broadcast(self, server: State, clients: Tensor) -> Payload:
        """The mean filter."""
        return {"filter": broadcast(server["filter"], len(clients))}

    def _factor(self, own: Tensor) -> Tensor:
        """[c, m, 2], a factor of F_c = R~' R~ + w_p V V'."""
        matrix = normalised(own[:, None].float())
        ideal = math.sqrt(self.config.filter_weight) * low_pass(matrix, self.config.filter_rank)
        return torch.cat([matrix, ideal], 1).mT

    def train(self, clients: ClientState, payload: Payload, samples: Samples, round: int) -> tuple[Payload, Tensor]:
        """Nothing to train: build the filter from the own items."""
        ones = torch.ones(*samples.rows.shape, 1, device=samples.rows.device)
        n_items = tensor(payload, "filter").shape[1]
        own = RowUpdate(samples.rows, samples.row_counts, ones, n_items).dense()[..., 0] > 0
        clients["own"] = own
        factor = self._factor(own)
        rows = factor.gather(1, samples.rows.long()[..., None].expand(-1, -1, 2))
        sparse = RowUpdate(samples.rows, samples.row_counts, rows, n_items)
        return {"items": sparse if self.config.fast_com else Gram(factor)}, torch.zeros(len(clients))

    def aggregate(self, server: State, uploads: Iterable[Upload], round: int) -> State:
        """F = mean of F_c."""
        mean = GramMean(len(server["filter"]), None, server["filter"].device)
        for upload in uploads:
            mean.add(_factor(upload))
        if not mean.clients:
            return server
        found = mean.total / mean.clients
        noise = self._noise(server, mean, round)
        return server | {"filter": found if noise is None else found + noise.float()}

    def scores(self, clients: ClientState, payload: Payload) -> Tensor:
        """X_c F_c + agg_p X_c F."""
        own = clients["own"]
        factor = self._factor(own)
        alone = (factor @ (factor.mT @ own[..., None].float())).squeeze(2)
        weight: float = self.config.agg_p
        return alone + weight * (own.float() @ tensor(payload, "filter")[0])


def _factor(upload: Upload) -> Tensor:
    """The tables [c, m, .] whose Gram matrices were uploaded."""
    part = upload.parts["items"]
    if isinstance(part, Table):
        return part.value
    return part.dense() if isinstance(part, RowUpdate) else part
