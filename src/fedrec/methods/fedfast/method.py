"""FedFast: active sampling of clients and active aggregation.

Muhammad, Wang, O'Reilly-Morgan, Tragos, Smyth, Hurley, Geraci, Lawlor, "FedFast: Going Beyond Average for Faster Training
of Federated Recommender Systems", KDD 2020. FedMF's model, but THE SERVER HOLDS EVERY USER VECTOR: clients upload p_u. It
clusters them, draws the participants (delegates) evenly from the clusters (ActvSAMP), weights the rows of a table by how
much they changed, and moves the vectors of all others (subordinates) along with the delegates of their cluster (ActvAGG).
Under full participation nothing is left of it but the weighting of rows.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedrec.errors import ConfigError
from fedrec.method import (
    Batch,
    ClientState,
    EachMethod,
    LearnedConfig,
    Ledger,
    LocalProblem,
    MatrixFactorisation,
    Params,
    Payload,
    Rule,
    State,
    TableMethod,
    Task,
    Total,
    Upload,
    add_mean,
    add_rows,
    broadcast,
    dot,
    lookup,
    step_mean,
    step_rows,
    tensor,
)
from fedrec.methods.fedfast.clustering import cluster_means, kmeans, random_starts
from fedrec.parts.aggregation import ChangeNorm, noise_notes, noise_problem
from fedrec.sampling import streams

RESTARTS = 10  # of k-means wherever it starts cold


class FedFastConfig(LearnedConfig):
    """Settings of FedFast."""

    participation: float = Field(0.1, gt=0, le=1)
    """Share of clients that train in a round (m_s, rounded up)."""
    clusters: int = Field(20, ge=1)
    """Number of clusters (k)."""
    gamma: float = Field(1.0, ge=0)
    """Share of its delegates' mean move that a subordinate makes in the first round."""
    tau: float | None = Field(10.0, gt=0)
    """That share decays as exp(-t / tau) over the rounds t = 0, 1, ...; none: constant. A re-implementation uses 1."""
    first_clusters: Literal["local", "random"] = "local"
    """First clusters: after a first round in which every client trains, or of the random initial vectors."""
    clustering: Literal["after", "before"] = "after"
    """Cluster after the delegates' new vectors are in (steps 3, 4), or before."""
    kmeans: Literal["warm", "cold"] = "warm"
    """Start from the previous centroids, or anew every round with 10 restarts."""
    iterations: int = Field(10, ge=1)
    """Of Lloyd's algorithm per round."""
    agg: Rule = "change"
    """How rows are combined; ``change`` is ActvAGG, another rule what is left where noise hides how much a row changed."""
    norm: ChangeNorm = "l1"
    """What weights a delegate's row: L1 or L2 norm of its change, or the absolute change of each coordinate."""
    scorer: Literal["dot", "gmf"] = "dot"
    """p . q, or h . (p (.) q) + b with an output layer (NE) that is averaged with weights n_k / sum n."""


class FedFast(TableMethod, EachMethod):
    """FedMF with user vectors on the server, that move in clusters."""

    name = "fedfast"
    title = "active sampling and aggregation; the server knows all user vectors"
    paper = "Muhammad et al., KDD 2020"
    private = "nothing (the server holds the user vectors)"
    uploaded = "changes of touched item rows and of the user vector (d)"
    server_keeps = "item table (m x d), all user vectors (n x d), their clusters"
    Config = FedFastConfig
    config: FedFastConfig
    private_names = ()

    @property
    def shared_names(self) -> tuple[str, ...]:  # type: ignore[override]
        """What a client downloads and trains beside the table."""
        return ("user",) if self.config.scorer == "dot" else ("user", "output")

    def server_state(self, task: Task) -> State:
        """Random item table, random user vectors and their clusters; with an output layer its weights (1) and bias (0)."""
        c = self.config
        if c.clusters > (most := self._size(task)):
            raise ConfigError(
                f"fedfast: {c.clusters} clusters are more than the {most} participants of a round; "
                f"lower clusters to {most} at most, or raise participation (now {c.participation:g})."
            )
        key = task.common_key(streams.Purpose.OTHER)
        users = task.client_normal(torch.arange(task.n_clients), c.dim, std=c.init_std)
        labels, centroids = kmeans(users, random_starts(users, c.clusters, RESTARTS, key), c.iterations)
        items = task.item_table(c.dim, c.init_std)
        output = torch.ones(c.dim + 1, device=task.device)
        output[-1] = 0
        state = {"items": items, "users": users, "clusters": labels, "centroids": centroids}
        return state if c.scorer == "dot" else state | {"output": output}

    def client_state(self, task: Task, clients: Tensor) -> State:
        """Nothing: a client's vector comes with the table, as others' training may have moved it."""
        return {}

    def _size(self, task: Task) -> int:
        """m_s."""
        able = len(task.able)
        return min(able, math.ceil(round(self.config.participation * able, 6)))

    def participants(self, task: Task, server: State, round: int) -> Tensor:
        """ActvSAMP: m_s / k clients of each cluster; what a small one lacks comes from the others, large ones first."""
        able = task.able
        if round == 0 and self.config.first_clusters == "local":
            return able
        return draw_evenly(able, server["clusters"].cpu()[able], self._size(task), task.participation_rng(round))

    def broadcast(self, task: Task, server: State, clients: Tensor) -> Payload:
        """The item table and the client's own vector."""
        payload: Payload = {
            "items": broadcast(server["items"], len(clients)),
            "user": server["users"][clients.to(server["users"].device)],
        }
        if self.config.scorer == "gmf":
            payload["output"] = broadcast(server["output"], len(clients))
        return payload

    def loss(self, params: Params, batch: Batch) -> Tensor:
        """Mean binary cross-entropy."""
        rows = lookup(params["block"], batch.slots)
        user, bias = self._weighted(params)
        return batch.bce((rows @ user.unsqueeze(2)).squeeze(2) + bias)

    def _weighted(self, params: Params) -> tuple[Tensor, Tensor]:
        """h (.) p, whose dot product with a row is the score, and the bias [c, 1]."""
        user = params["user"]
        if "output" not in params:
            return user, torch.zeros_like(user[:, :1])
        return user * params["output"][:, :-1], params["output"][:, -1:]

    def problem(self, round: int) -> LocalProblem:
        """As FedMF where there is no output layer."""
        return super().problem(round) if self.config.scorer == "gmf" else MatrixFactorisation()

    def privacy_problem(self) -> str | None:
        """Noise must not be the weight of a row."""
        return noise_problem(self.config.agg)

    def privacy_notes(self) -> tuple[str, ...]:
        """Noise lies on every row."""
        return noise_notes(self.config.agg)

    def step(self, task: Task, server: State, uploads: list[Upload], round: int) -> State:
        """ActvAGG."""
        c, total = self.config, Total()
        before = server["users"]
        after, delegate = before.clone(), torch.zeros(len(before), dtype=torch.bool, device=before.device)
        for upload in uploads:
            add_rows(total, upload, "items", c.agg, norm=c.norm)  # step 2
            if c.scorer == "gmf":
                add_mean(total, upload, "output")  # step 1
            who = upload.clients.to(before.device)
            after[who] += tensor(upload.parts, "user")  # step 3
            delegate[who] = True
        points = after if c.clustering == "after" else before  # step 4
        if round == 0 or c.kmeans == "cold":
            key = streams.child(task.common_key(streams.Purpose.OTHER), round + 1)
            starts = random_starts(points, c.clusters, RESTARTS, key)
        else:
            starts = server["centroids"][None]
        labels, centroids = kmeans(points, starts, c.iterations)
        gamma = c.gamma * (math.exp(-round / c.tau) if c.tau else 1.0)
        users = propagate(before, after, delegate, labels, c.clusters, gamma)  # step 5
        items = step_rows(server["items"], total, "items", c.agg)
        state = {"items": items, "users": users, "clusters": labels, "centroids": centroids}
        return state if c.scorer == "dot" else state | {"output": step_mean(server["output"], total, "output")}

    def scores(self, task: Task, private: ClientState, payload: Payload) -> Tensor:
        """p_u . q_i with the newest of both."""
        user, bias = self._weighted({name: tensor(payload, name) for name in self.shared_names})
        return dot(user, tensor(payload, "items")) + bias

    def diagnostics(self, task: Task, server: State, ledger: Ledger) -> dict[str, Any]:
        """A reminder that belongs into every report, and how the users lie in clusters."""
        sizes = torch.bincount(server["clusters"], minlength=self.config.clusters)
        return {"server_holds_user_vectors": True, "cluster_sizes": sizes.sort(descending=True).values.tolist()}


def draw_evenly(clients: Tensor, labels: Tensor, size: int, rng: np.random.Generator) -> Tensor:
    """``size`` of the clients, one per cluster in turn, larger clusters first, until there are enough; ascending."""
    if size >= len(clients):
        return clients
    shuffled = torch.from_numpy(rng.permutation(len(clients)))
    by_cluster = shuffled[labels[shuffled].argsort(stable=True)]
    sizes = torch.bincount(labels)
    first = sizes.cumsum(0) - sizes
    turn = torch.arange(len(clients)) - first[labels[by_cluster]]
    position = sizes.argsort(descending=True, stable=True).argsort()[labels[by_cluster]]
    order = (turn * len(sizes) + position).argsort()
    return clients[by_cluster[order[:size]]].sort().values


def propagate(before: Tensor, after: Tensor, delegate: Tensor, labels: Tensor, k: int, gamma: float) -> Tensor:
    """Step 5 of ActvAGG: subordinates move by gamma times the mean move of the delegates in their cluster."""
    shift = cluster_means((after - before)[delegate], labels[delegate], k)
    return torch.where(delegate[:, None], after, before + gamma * shift[labels])
