"""FedEM: elastic merging and similarity aggregation.

Chen, Zhang, Zhang, Luo, Li, "Breaking the Aggregation Bottleneck in Federated Recommendation: A Personalized Model
Merging Approach", AAAI 2026. FedMF's model and loss (Eq. 2); a client merges the table it downloads with its own, item
by item, with weights from a small private network (Eq. 9-11); the server gives every client its own mean of similar
clients' tables (Eq. 13). ``variant`` sets all points in which the paper and the released code differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from fedrec.federation.method import LearnedConfig, Method, Task, participation_rng
from fedrec.federation.payload import Payload, State, Table, Upload, table, tensor
from fedrec.federation.store import ClientState, select
from fedrec.local.adapters import MergingAdapter, adapter_widths
from fedrec.local.factorisation import MatrixFactorisation
from fedrec.local.fit import Schedule, Step, take_rows
from fedrec.parts import merging
from fedrec.parts import similarity as alike
from fedrec.parts.scorers import dot
from fedrec.sampling import streams
from fedrec.sampling.samples import Samples

VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {
        "agg_ratio": 1.0,
        "adapter_schedule": "before",
        "train_through_adapter": False,
        "similarity": "table",
        "distance": "squared",
        "sim_snap": None,
        "weights": "scaled",
        "early_stop_tol": 0.0,
    },
    "code": {
        "agg_ratio": 0.1,
        "adapter_schedule": "interleaved",
        "train_through_adapter": True,
        "similarity": "pca1",
        "distance": "plain",
        "sim_snap": 0.9,
        "weights": "unscaled",
        "early_stop_tol": 1e-4,
    },
}


class FedEMConfig(LearnedConfig):
    """Settings of FedEM; the settings of its tables are the defaults."""

    epochs: int = Field(10, ge=1)
    lr: float = Field(0.1, gt=0)
    init_std: float = Field(1.0, gt=0)
    common_init: bool = True
    """All clients start from the same user vector and adapter."""
    variant: Literal["paper", "code"] = "paper"
    """Sets the options below as the paper describes the method or as the released code runs; any can be overridden."""
    merge: merging.Mode = "elastic"
    """replace (SR), static (SM), dynamic (DM), elastic (EM), or none (no federation)."""
    rho: float = Field(0.5, ge=0, le=1)
    """Weight of the downloaded table under static merging."""
    dynamic_pool: merging.Pool = "items"
    """Dynamic merging: mean of the adapter over all items, or the adapter of the mean row."""
    adapter_hidden: tuple[Annotated[int, Field(ge=1)], ...] = (16, 8)
    adapter_lr: float | None = Field(None, gt=0)
    """beta; by default ``lr``."""
    adapter_epochs: int | None = Field(None, ge=1)
    """Length of the adapter phase; by default ``epochs``."""
    alpha: float = Field(0.9, ge=0)
    agg: Literal["both", "mean", "similarity"] = "both"
    """Data weights and similarity (Eq. 13), data weights alone, or similarities divided by their sum."""
    agg_ratio: float = Field(1.0, gt=0, le=1)
    """Share of the participants that upload, are aggregated, and get a table."""
    adapter_schedule: Literal["before", "interleaved"] = "before"
    """Adapter phase before merging (Eq. 11, then 10), or one adapter step before every embedding step."""
    train_through_adapter: bool = False
    """Embedding steps look through the adapter (rows are then merged twice), or score p . q directly (Eq. 12)."""
    similarity: alike.Kind = "table"
    distance: alike.Distance = "squared"
    sim_snap: float | None = None
    """Similarities above this become 1."""
    pca_sign: alike.Sign = "fixed"
    weights: alike.Weights = "scaled"
    early_stop_tol: float = Field(0.0, ge=0)

    @property
    def schedule(self) -> Schedule:
        """With early stop."""
        return Schedule(self.epochs, self.batch_size, self.early_stop_tol)

    @model_validator(mode="before")
    @classmethod
    def _fill_variant(cls, values: dict[str, Any]) -> dict[str, Any]:
        preset = VARIANTS.get(values.get("variant", "paper"), {})
        return preset | values

    @model_validator(mode="after")
    def _consistent(self) -> FedEMConfig:
        if self.merge == "dynamic" and (self.adapter_schedule == "interleaved" or self.train_through_adapter):
            raise ValueError("dynamic merging needs adapter_schedule=before and train_through_adapter=false")
        if self.optimizer != "adam" and self.merge in ("dynamic", "elastic"):
            raise ValueError("the adapter is trained with adam; set optimizer=adam or another merge mode")
        return self


class FedEM(Method):
    """FedMF + merging + similarity aggregation."""

    name = "fedem"
    title = "elastic merging of personal and aggregated item tables, similarity aggregation"
    paper = "Chen et al., AAAI 2026"
    private = "user vector (d), item table (m x d), adapter (673 numbers at d = 16)"
    uploaded = "item table (m x d)"
    server_keeps = "one item table (m x d) per aggregated client"
    Config = FedEMConfig

    @property
    def widths(self) -> tuple[int, ...]:
        """Layers of the adapter."""
        return adapter_widths(self.config.dim, self.config.adapter_hidden)

    @property
    def adapts(self) -> bool:
        """Whether clients have adapters at all."""
        return self.config.merge in ("dynamic", "elastic")

    def server_state(self, task: Task) -> State:
        """No tables yet; ``uploads`` marks the clients drawn to upload in the coming round."""
        empty = torch.zeros(0, task.n_items, self.config.dim, device=task.device)
        none = torch.full((task.n_clients,), -1, dtype=torch.int64)
        server = {"tables": empty, "slot": none, "counts": task.counts, "seed": torch.tensor(task.seed)}
        return server | {"uploads": self._uploaders(server, 0)}

    def _uploaders(self, server: State, round: int) -> Tensor:
        """The random share of a round's participants whose tables are aggregated."""
        n, seed = len(server["slot"]), int(server["seed"])
        task = Task(n, server["tables"].shape[1], server["counts"], seed, server["tables"].device)
        drawn = self.participants(task, server, round, participation_rng(seed, round))
        if self.config.agg_ratio < 1:
            rng = np.random.default_rng([seed, int(streams.Purpose.OTHER), round])
            k = max(1, int(self.config.agg_ratio * len(drawn)))
            drawn = drawn[torch.from_numpy(rng.choice(len(drawn), k, replace=False))]
        chosen = torch.zeros(n, dtype=torch.bool)
        chosen[drawn] = True
        return chosen

    def client_state(self, task: Task, clients: Tensor) -> State:
        """User vectors and a copy of the common item table; adapters U(+-1/sqrt(fan in))."""
        c = self.config
        items = task.normal(task.n_items, c.dim, std=c.init_std, generator=task.generator())
        self._start = items  # a function of the seed, known to everybody
        state = {
            "user": task.client_normal(clients, c.dim, std=c.init_std, common=c.common_init),
            "items": items.expand(len(clients), -1, -1),
        }
        if self.adapts:
            who = torch.zeros(1, dtype=torch.int64) if c.common_init else clients.cpu()
            keys = streams.child(streams.keys(task.seed, streams.Purpose.INIT, 0, who), 1)
            theta = MergingAdapter(self.widths).network.draw_each(keys)
            state["adapter"] = theta.expand(len(clients), -1).to(task.device)
        return state

    def server_bytes(self, private: int) -> int:
        """One table per aggregated client."""
        return int(private * self.config.agg_ratio)

    def kinds(self, server: State, clients: Tensor) -> Tensor:
        """Clients with and without a server table, that upload or do not."""
        who = clients.cpu()
        return 2 * (server["slot"][who] >= 0).long() + server["uploads"][who].long()

    def broadcast(self, server: State, clients: Tensor) -> Payload:
        """The client's own mean of similar tables, where it has one, and whether it is drawn to upload."""
        who = clients.cpu()
        payload: Payload = {"upload": server["uploads"][who]}
        slots = server["slot"][who]
        if len(slots) and int(slots[0]) >= 0 and self.config.merge != "none":
            tables = server["tables"]
            payload["items"] = tables.expand(len(slots), -1, -1) if len(tables) == 1 else select(tables, slots)
        return payload

    def train(self, clients: ClientState, payload: Payload, samples: Samples, round: int) -> tuple[Payload, Tensor]:
        """Merge, then train locally (section 3 of the paper); the order of both is the variant's."""
        c = self.config
        user = clients["user"].clone()
        server = tensor(payload, "items") if "items" in payload else None
        theta = clients["adapter"].clone() if self.adapts else None
        if server is not None:
            if theta is not None and c.adapter_schedule == "before":
                self._adapter_phase(clients, theta, user, server, samples)
            clients["items"] = self._merged(clients["items"], server, theta)
        block = clients.take("items", samples)
        if (
            server is not None
            and theta is not None
            and (c.adapter_schedule == "interleaved" or c.train_through_adapter)
        ):
            loss = self._train_with_adapter(theta, user, block, take_rows(server, samples), samples)
        else:
            params = {"user": user, "block": block}
            steps = [Step(("user", "block"), c.lr, c.optimizer)]
            loss = MatrixFactorisation().train(params, samples, c.schedule, steps)
        clients.put("items", samples, block)
        clients["user"] = user
        if theta is not None:
            clients["adapter"] = theta
        if c.merge == "none" or not bool(tensor(payload, "upload")[0]):
            return {}, loss
        items = clients["items"]
        # The merged table carries earlier training, so only the download, or the common start, is known to the server.
        return {"items": Table(items, server if server is not None else self._start.expand_as(items))}, loss

    def _merged(self, local: Tensor, server: Tensor, theta: Tensor | None) -> Tensor:
        c = self.config
        return merging.merge(c.merge, local, server, theta=theta, widths=self.widths, rho=c.rho, pool=c.dynamic_pool)

    def _adapter_phase(
        self, clients: ClientState, theta: Tensor, user: Tensor, server: Tensor, samples: Samples
    ) -> None:
        """Eq. 11: only the adapter moves, through the merged rows."""
        c = self.config
        params = {"adapter": theta, "user": user}
        params |= {"local": clients.take("items", samples), "server": take_rows(server, samples)}
        if c.merge == "dynamic":
            pool = merging.pool_rows(c.dynamic_pool, clients["items"], server)
            params |= {"pool_local": pool[0], "pool_server": pool[1]}
        schedule = replace(c.schedule, epochs=c.adapter_epochs or c.epochs)
        MergingAdapter(self.widths).train(params, samples, schedule, [Step(("adapter",), c.adapter_lr or c.lr)])

    def _train_with_adapter(
        self, theta: Tensor, user: Tensor, block: Tensor, server: Tensor, samples: Samples
    ) -> Tensor:
        c = self.config
        plain = None if c.train_through_adapter else MatrixFactorisation(rows="local").loss
        steps = [Step(("user", "local"), c.lr, loss=plain)]
        if c.adapter_schedule == "interleaved":
            steps.insert(0, Step(("adapter",), c.adapter_lr or c.lr))
        params = {"adapter": theta, "user": user, "local": block, "server": server}
        return MergingAdapter(self.widths).train(params, samples, c.schedule, steps)

    def aggregate(self, server: State, uploads: Iterable[Upload], round: int) -> State:
        """Eq. 13 for every uploading client; needs all their tables at once."""
        c = self.config
        clients, counts, tables = [], [], []
        for upload in uploads:
            if "items" in upload.parts:
                clients.append(upload.clients.cpu())
                counts.append(upload.weights)
                tables.append(table(upload.parts, "items").value)
        slot = torch.full_like(server["slot"], -1)
        server = server | {"slot": slot, "uploads": self._uploaders(server, round + 1)}
        if not tables:
            return server
        size = torch.cat(counts)
        share = size / size.sum()
        who = torch.cat(clients)
        if c.agg == "mean":  # one table for all, so one is kept
            slot[who] = 0
            return server | {"tables": alike.mix(share[None], tables)}
        slot[who] = torch.arange(len(who))
        near = alike.similarities(tables, c.similarity, c.distance, snap=c.sim_snap, sign=c.pca_sign)
        if c.agg == "similarity":
            weights = near / near.sum(1, keepdim=True)
        else:
            weights = alike.simplex_weights(near, share, c.alpha, c.weights)
        return server | {"tables": alike.mix(weights, tables)}

    def scores(self, clients: ClientState, payload: Payload) -> Tensor:
        """p_u . q_i with the merged table where the client has a server table, else with its own."""
        items = clients["items"]
        if "items" in payload:
            theta = clients["adapter"] if self.adapts else None
            items = self._merged(items, tensor(payload, "items"), theta)
        return dot(clients["user"], items)
