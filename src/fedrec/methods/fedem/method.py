"""FedEM: elastic merging and similarity aggregation.

Chen, Zhang, Zhang, Luo, Li, "Breaking the Aggregation Bottleneck in Federated Recommendation: A Personalized Model
Merging Approach", AAAI 2026. FedMF's model and loss (Eq. 2); a client merges the table it downloads with its own, item
by item, with weights from a small private network (Eq. 9-11); the server gives every client its own mean of similar
clients' tables (Eq. 13). ``variant`` sets all points in which the paper and the released code differ.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from fedrec.federation.mixture import Mixture
from fedrec.federation.search import Range, Space
from fedrec.federation.store import select
from fedrec.method import (
    ClientState,
    EachMethod,
    LearnedConfig,
    MatrixFactorisation,
    Method,
    MethodConfig,
    Payload,
    Samples,
    Schedule,
    State,
    Step,
    SumMethod,
    Table,
    Task,
    Total,
    Upload,
    dot,
    table,
    take_rows,
    tensor,
)
from fedrec.methods.fedem import similarity as alike
from fedrec.methods.fedem.approximate import mix_low_rank
from fedrec.parts.centred import Products, centred_mix, on_tensor_cores
from fedrec.parts.merger import ADAPTER, Merger
from fedrec.parts.served import ServedSettings, uploaders
from fedrec.parts.tables import mix

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
        "pca_sign": "raw",
        "weights": "unscaled",
        "early_stop_tol": 1e-4,
    },
}


class FedEMConfig(ServedSettings, LearnedConfig):
    """Settings of FedEM; the settings of its tables are the defaults."""

    space: ClassVar[Space] = {
        "lr": Range(3e-3, 0.3, log=True),
        "epochs": Range(1, 10, whole=True),
        "init_std": Range(0.003, 1.0, log=True),
        "adapter_lr": Range(1e-5, 0.1, log=True),
    }

    epochs: int = Field(10, ge=1)
    lr: float = Field(0.1, gt=0)
    init_std: float = Field(1.0, gt=0)
    common_init: bool = True
    """All clients start from the same user vector and adapter."""
    variant: Literal["paper", "code"] = "paper"
    """Sets the options below as the paper describes the method or as the released code runs; any can be overridden."""
    adapter_lr: float | None = Field(None, gt=0)  # type: ignore[assignment]
    """beta; by default ``lr``."""
    adapter_epochs: int | None = Field(None, ge=1)  # type: ignore[assignment]
    """Length of the adapter phase; by default ``epochs``."""
    alpha: float = Field(0.9, ge=0)
    """Weight of similarity beside data in Eq. 13."""
    agg: Literal["both", "mean", "similarity"] = "both"
    """Data weights and similarity (Eq. 13), data weights alone, or similarities divided by their sum."""
    similarity: alike.Kind = "table"
    """Of whole tables, of their rows' scores on the first principal component, or the cosine of those scores."""
    distance: alike.Distance = "squared"
    """Distances of tables enter the similarity squared, or plain as in the released code."""
    sim_snap: float | None = None
    """Similarities above this become 1."""
    pca_sign: alike.Sign = "fixed"
    """Sign of the principal component: its largest entry is positive, or as the decomposition returns it."""
    sketch: int | None = Field(None, ge=8)
    """Approximate distances of whole tables from sketches of so many numbers (512 is good); none: exactly."""
    rank: int | None = Field(None, ge=1)
    """Approximate personal means by weights of so many ranks beside each client's own (8 is good); none: exactly."""
    products: Products = "tf32"
    """Distances and means of whole tables on a GPU: on its tensor cores, relative to the mean table, or in float32."""
    weights: alike.Weights = "scaled"
    """Projection of (p + alpha s) / (1 + alpha) (Eq. 13), or of p + alpha s as in the released code."""

    @property
    def schedule(self) -> Schedule:
        """With early stop."""
        return Schedule(self.epochs, self.batch_size, self.early_stop_tol)

    @model_validator(mode="before")
    @classmethod
    def _fill_variant(cls, values: dict[str, Any]) -> dict[str, Any]:
        variant = values.get("variant", "paper")
        return (VARIANTS.get(variant, {}) if isinstance(variant, str) else {}) | values

    @model_validator(mode="after")
    def _consistent(self) -> FedEMConfig:
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
    telling = ("variant", "merge")
    config: FedEMConfig

    @classmethod
    def kind_for(cls, config: MethodConfig) -> type[Self]:
        """With plain means the server needs sums only, with similarities every table."""
        kind: Any = MeanFedEM if isinstance(config, FedEMConfig) and config.agg == "mean" else SimilarFedEM
        chosen: type[Self] = kind
        return chosen

    @property
    def merger(self) -> Merger:
        """Merging of the item table."""
        return Merger(self.config, self.config.dim)

    def server_state(self, task: Task) -> State:
        """No tables yet; ``uploads`` marks the clients drawn to upload in the coming round."""
        empty = torch.zeros(0, task.n_items, self.config.dim, device=task.device)
        server = {"tables": empty, "slot": torch.full((task.n_clients,), -1, dtype=torch.int64)}
        return server | {"uploads": self._uploaders(task, server, 0)}

    def _uploaders(self, task: Task, server: State, round: int) -> Tensor:
        """The random share of a round's participants whose tables are aggregated."""
        return uploaders(task, self.participants(task, server, round), self.config.agg_ratio, round)

    def _start(self, task: Task) -> Tensor:
        """The item table all clients start from: a function of the seed, known to everybody."""
        return task.item_table(self.config.dim, self.config.init_std)

    def client_state(self, task: Task, clients: Tensor) -> State:
        """User vectors and a copy of the common item table; adapters U(+-1/sqrt(fan in))."""
        c = self.config
        state = {
            "user": task.client_normal(clients, c.dim, std=c.init_std, common=c.common_init),
            "items": self._start(task).expand(len(clients), -1, -1),
        }
        if self.merger.adapts:
            theta = self.merger.draw(task, stream=1, clients=None if c.common_init else clients)
            state[ADAPTER] = theta.expand(len(clients), -1)
        return state

    def server_bytes(self, clients: int, items: int, private: int) -> int:
        """One table per aggregated client."""
        return int(private * self.config.agg_ratio)

    def kinds(self, task: Task, server: State, clients: Tensor) -> Tensor:
        """Clients with and without a server table, that upload or do not."""
        who = clients.cpu()
        return 2 * (server["slot"][who] >= 0).long() + server["uploads"][who].long()

    def broadcast(self, task: Task, server: State, clients: Tensor) -> Payload:
        """The client's own mean of similar tables, where it has one, and whether it is drawn to upload."""
        who = clients.cpu()
        payload: Payload = {"upload": server["uploads"][who]}
        slots = server["slot"][who]
        if len(slots) and int(slots[0]) >= 0 and self.config.merge != "none":
            tables = server["tables"]
            payload["items"] = tables.expand(len(slots), -1, -1) if len(tables) == 1 else select(tables, slots)
        return payload

    def train(
        self, task: Task, private: ClientState, payload: Payload, samples: Samples, round: int
    ) -> tuple[Payload, Tensor]:
        """Merge, then train locally; the order of both is the variant's."""
        c, merger = self.config, self.merger
        user = private["user"].clone()
        server = tensor(payload, "items") if "items" in payload else None
        theta = private[ADAPTER].clone() if merger.adapts else None
        if server is not None:
            if theta is not None and c.adapter_schedule == "before":
                self._adapter_phase(private, theta, user, server, samples)
            private["items"] = merger.merged(private["items"], server, theta)
        block = private.take("items", samples)
        if server is not None and theta is not None and c.looks_through:
            loss = self._train_with_adapter(theta, user, block, take_rows(server, samples), samples)
        else:
            steps = [Step(("user", "block"), c.lr, c.optimizer)]
            loss = MatrixFactorisation().train({"user": user, "block": block}, samples, c.schedule, steps)
        private.put("items", samples, block)
        private.write({"user": user} if theta is None else {"user": user, ADAPTER: theta})
        if c.merge == "none" or not bool(tensor(payload, "upload")[0]):
            return {}, loss
        items = private["items"]
        # The merged table carries earlier training, so only the download, or the common start, is known to the server.
        return {"items": Table(items, server if server is not None else self._start(task).expand_as(items))}, loss

    def _adapter_phase(
        self, private: ClientState, theta: Tensor, user: Tensor, server: Tensor, samples: Samples
    ) -> None:
        """Eq. 11: only the adapter moves, through the merged rows."""
        c, rows = self.config, (private.take("items", samples), take_rows(server, samples))
        schedule = replace(c.schedule, epochs=c.adapter_epochs or c.epochs)
        self.merger.adapt(
            theta, {"user": user}, rows, samples, schedule, c.adapter_lr or c.lr,
            tables=lambda: (private["items"], server),
        )  # fmt: skip

    def _train_with_adapter(
        self, theta: Tensor, user: Tensor, block: Tensor, server: Tensor, samples: Samples
    ) -> Tensor:
        """The released code's order: in every batch a step on the adapter before the one on user and rows."""
        c = self.config
        first = Step((ADAPTER,), c.adapter_lr or c.lr) if c.adapter_schedule == "interleaved" else None
        return self.merger.train_through(
            theta, server, MatrixFactorisation(), {"user": user, "block": block}, samples, c.schedule,
            [Step(("user", "block"), c.lr)], first=first, through=c.train_through_adapter,
        )  # fmt: skip

    def _next(self, task: Task, server: State, round: int, slot: Tensor, tables: Tensor | None) -> State:
        """The server's state with new tables, and who uploads next."""
        new = server if tables is None else server | {"tables": tables}
        return new | {"slot": slot, "uploads": self._uploaders(task, server, round + 1)}

    def scores(self, task: Task, private: ClientState, payload: Payload) -> Tensor:
        """p_u . q_i with the merged table where the client has a server table, else with its own."""
        items = private["items"]
        if "items" in payload:
            theta = private[ADAPTER] if self.merger.adapts else None
            items = self.merger.merged(items, tensor(payload, "items"), theta)
        return dot(private["user"], items)

    @property
    def merges(self) -> bool:
        """Clients have a table of their own and get one."""
        return True

    def mixture(self, task: Task, private: ClientState, payload: Payload) -> Mixture:
        """The own tables and the server's; clients without one of the server's have their own."""
        items = private["items"]
        if "items" not in payload:
            return Mixture(items, items, items.new_zeros(items.shape[:2]))
        theta = private[ADAPTER] if self.merger.adapts else None
        return self.merger.mixture(items, tensor(payload, "items"), theta)


class MeanFedEM(FedEM, SumMethod):
    """``agg=mean``: every aggregated client gets the same table, the mean weighted by data."""

    server_keeps = "one item table (m x d)"

    def server_bytes(self, clients: int, items: int, private: int) -> int:
        """One table, whatever the number of clients."""
        return 0

    def public_sum(self, name: str) -> bool:
        """How many there are."""
        return name == "size"

    def contribute(self, task: Task, upload: Upload, total: Total) -> None:
        """n_u times the table, n_u, and how many clients: their slots are the round's uploaders."""
        tables = table(upload.parts, "items").value
        total.add("items", torch.tensordot(upload.weights, tables, dims=1))
        total.add("size", upload.weights.sum())

    def step(self, task: Task, server: State, total: Total, round: int) -> State:
        """The weighted mean."""
        slot = torch.full_like(server["slot"], -1)
        if not total:
            return self._next(task, server, round, slot, None)
        slot[server["uploads"]] = 0
        return self._next(task, server, round, slot, (total["items"] / total["size"])[None])


class SimilarFedEM(FedEM, EachMethod):
    """Every aggregated client gets its own mean, weighted by data and similarity."""

    def step(self, task: Task, server: State, uploads: list[Upload], round: int) -> State:
        """Eq. 13 for every uploading client; needs all their tables at once."""
        c = self.config
        slot = torch.full_like(server["slot"], -1)
        if not uploads:
            return self._next(task, server, round, slot, None)
        tables = [table(upload.parts, "items").value for upload in uploads]
        size = torch.cat([upload.weights for upload in uploads])
        share = size / size.sum()
        who = torch.cat([upload.clients.cpu() for upload in uploads])
        slot[who] = torch.arange(len(who))
        sketch = None if c.sketch is None else (c.sketch, task.seed)
        near = alike.similarities(
            tables, c.similarity, c.distance, snap=c.sim_snap, sign=c.pca_sign, sketch=sketch, products=c.products
        )
        if c.agg == "similarity":
            weights = near / near.sum(1, keepdim=True)
        else:
            weights = alike.simplex_weights(near, share, c.alpha, c.weights)
        if c.rank is not None:
            personal = mix_low_rank(weights, tables, c.rank, task.seed)
        else:
            personal = (centred_mix if on_tensor_cores(c.products, tables) else mix)(weights, tables)
        return self._next(task, server, round, slot, personal)
