"""GPFedRec: personal item tables from a graph of clients guide local training.

Zhang, Long, Zhou, Zhang, Yan, Yang, "GPFedRec: Graph-Guided Personalization for Federated Recommendation", KDD 2024. A
private network scores a private user vector and an item row; local training starts from the common table and is drawn
towards the mean r_u of the tables of the client's neighbours (Eq. 7), which the server finds in the uploads (Eq. 3-6).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn.functional import binary_cross_entropy

from fedrec.local.mlp import FlatMLP
from fedrec.method import (
    Batch,
    ClientState,
    EachMethod,
    Fit,
    LearnedConfig,
    LocalProblem,
    Params,
    Payload,
    Samples,
    State,
    Step,
    TableMethod,
    Task,
    Upload,
    Width,
    broadcast,
    lookup,
    put_rows,
    take_rows,
    tensor,
)
from fedrec.methods.gpfedrec import graph as graphs
from fedrec.parts.scorers import by_chunks
from fedrec.parts.tables import mix
from fedrec.sampling import streams


class GPFedRecConfig(LearnedConfig):
    """Settings of GPFedRec; the released code's are the defaults."""

    epochs: int = Field(1, ge=1)
    lr: float = Field(0.1, gt=0)
    """Rate of the network (eta)."""
    optimizer: Literal["sgd", "adam"] = "sgd"
    """Of everything; with Adam everything moves at ``lr``, and rows that no sample touches do not move."""
    init_std: float = Field(1.0, gt=0)
    lr_eta: float = Field(80.0, gt=0)
    """Rates are lr * items * lr_eta - lr for the item table and lr * lr_eta / participation - lr for the user vector."""
    lr_item: float | None = Field(None, gt=0)
    """The item table's rate itself."""
    lr_user: float | None = Field(None, gt=0)
    """The user vector's rate itself."""
    bce: Literal["logits", "sigmoid"] = "logits"
    """Cross-entropy of logits, or of their float32 sigmoid as in the released code: a saturated one has no gradient."""
    hidden: tuple[Width, ...] = (32, 16, 8)
    """Widths of the network between its input, 2 dim, and its output, 1."""
    reg: float = Field(1.0, ge=0)
    """Weight of the pull towards r_u (lambda of Eq. 7), a mean over the whole table."""
    graph: graphs.Kind = "distance"
    """Link unlike clients, as the released code does (distance), or like ones, as written (similarity)."""
    neighbours: graphs.Rule | None = None
    """Who is linked: above gamma times the mean, the k nearest, above a quantile; by default topk for similarity."""
    gamma: float = Field(1.0, ge=0)
    """Neighbours are nearer than this times the mean of the graph (``neighbours=threshold``)."""
    k: int = Field(10, ge=1)
    """Number of neighbours (``neighbours=topk``)."""
    quantile: float = Field(0.9, ge=0, lt=1)
    """Neighbours are above this quantile of the graph (``neighbours=quantile``)."""
    layers: int = Field(1, ge=1)
    """How often tables are passed along the graph (l)."""
    graph_every: int = Field(1, ge=1)
    """Rounds between two graphs (Light_GPFedRec)."""
    score_table: Literal["own", "global", "r"] = "own"
    """Score with the client's tuned table, the common one or r_u; the others are reported beside it."""

    @property
    def rule(self) -> graphs.Rule:
        """Who is linked."""
        return self.neighbours or ("threshold" if self.graph == "distance" else "topk")

    def item_rate(self, n_items: int) -> float:
        """Learning rate of the item table."""
        usual = self.lr * n_items * self.lr_eta - self.lr if self.optimizer == "sgd" else self.lr
        return usual if self.lr_item is None else self.lr_item

    @property
    def user_rate(self) -> float:
        """Learning rate of the user vector."""
        usual = self.lr * self.lr_eta / self.participation - self.lr if self.optimizer == "sgd" else self.lr
        return usual if self.lr_user is None else self.lr_user

    def pull(self, n_items: int) -> float:
        """Share kappa of its distance from r_u that every row loses in every step, untouched rows with Adam none."""
        if self.optimizer == "adam":
            return 0.0
        return 2 * self.reg * self.item_rate(n_items) / (n_items * self.dim)

    @model_validator(mode="after")
    def _stable(self) -> GPFedRecConfig:
        kappa = 2 * self.reg * self.lr * self.lr_eta / self.dim
        if self.lr_item is None and self.optimizer == "sgd" and kappa >= 2:
            raise ValueError(
                f"reg = {self.reg:g} overshoots, a step multiplies the distance from r_u by {1 - kappa:.3g}; "
                f"keep 2 * reg * lr * lr_eta / dim below 2"
            )
        if self.user_rate <= 0 or self.item_rate(1) <= 0:
            raise ValueError("lr_eta must be above 1, or the rates of user vector and items are not positive")
        return self


@dataclass(frozen=True)
class Pulled(LocalProblem):
    """A problem whose rows are drawn towards ``target``, the own ones where merged rows take the place of the block."""

    problem: LocalProblem
    weight: float

    def loss(self, params: Params, batch: Batch) -> Tensor:
        """Untouched rows do not enter the reported loss."""
        away = params.get("local", params["block"]) - params["target"]
        return self.problem.loss(params, batch).add(away.square().sum((1, 2)), alpha=self.weight)


class GPFedRec(TableMethod, EachMethod):
    """Private user vector and network; a common table to start from and a personal one to stay close to."""

    name = "gpfedrec"
    title = "private network, item tables drawn towards those of neighbours in a client graph"
    paper = "Zhang et al., KDD 2024"
    private = (
        "user vector (d), network (2,753 numbers at d = 32), tuned item table (m x d, of which its m scores are stored)"
    )
    uploaded = "change of the item table (m x d)"
    server_keeps = "item table (m x d), one personal item table (m x d) per client"
    Config = GPFedRecConfig
    config: GPFedRecConfig
    private_names = ("user", "network")
    table_view = "global"

    def cautions(self, n_items: int) -> list[str]:
        """A pull so strong that personal rows mean nothing."""
        kappa = self.config.pull(n_items)
        if kappa < 0.999:  # the item rate is lr less than lr lr_eta m
            return []
        return [
            f"reg = {self.config.reg:g} at dim = {self.config.dim} sets every row back to r_u, or beyond it, in every step "
            f"(kappa = 2 reg lr lr_eta / dim = {kappa:.3g}); the paper's setting is reg = gamma = 0.5."
        ]

    @property
    def network(self) -> FlatMLP:
        """The layers on concat(user, item row)."""
        return FlatMLP((2 * self.config.dim, *self.config.hidden, 1))

    def server_state(self, task: Task) -> State:
        """A common table N(0, init_std^2), and no personal ones yet."""
        c = self.config
        items = task.item_table(c.dim, c.init_std)
        state = {
            "items": items,
            "targets": items.repeat(task.n_clients, 1, 1),
            "known": torch.zeros(task.n_clients, dtype=torch.bool, device=task.device),
        }
        if c.graph_every > 1:
            state["graph"] = torch.zeros(task.n_clients, task.n_clients, device=task.device)
        return state

    def client_state(self, task: Task, clients: Tensor) -> State:
        """One user vector N(0, init_std^2) and one network U(+-1/sqrt(fan in)) for all, and how they score at first."""
        c, one = self.config, torch.zeros(1, dtype=torch.int64)
        user = task.client_normal(one, c.dim, std=c.init_std, common=True)
        network = self._draw(streams.child(task.common_key(streams.Purpose.INIT), 1)).to(task.device)
        items = task.item_table(c.dim, c.init_std)
        state = {"user": user, "network": network, "own": self.pair_scores(user, network, items[None])}
        return {name: value.expand(len(clients), -1) for name, value in state.items()}

    def _draw(self, keys: Tensor) -> Tensor:
        theta = self.network.draw_each(keys)
        d, first = self.config.dim, self.network.widths[1]
        # The weights of the first layer are drawn for the user vector, then for the item row, and lie side by side.
        side_by_side = theta[:, : 2 * d * first].view(-1, 2, first, d).transpose(1, 2).flatten(1)
        return torch.cat([side_by_side, theta[:, 2 * d * first :]], dim=1)

    def server_bytes(self, clients: int, items: int, private: int) -> int:
        """Personal tables, and at times all uploads and their means."""
        return 3 * 4 * clients * items * self.config.dim

    def broadcast(self, task: Task, server: State, clients: Tensor) -> Payload:
        """The common table and r_u; who has no r_u yet is drawn to the common table."""
        items = broadcast(server["items"], len(clients))
        who = clients.to(items.device)
        target, known = server["targets"].index_select(0, who), server["known"][who]
        if not bool(known.all()):
            target = torch.where(known[:, None, None], target, items)
        return {"items": items, "target": target}

    def pair_scores(self, user: Tensor, network: Tensor, rows: Tensor) -> Tensor:
        """Logits [c, b] of ``rows`` [c, b, d], differentiable."""
        return self.network.paired(network, user, rows).squeeze(2)

    def first_values(self, task: Task) -> State:
        """The common table."""
        return {"items": task.item_table(self.config.dim, self.config.init_std)}

    def loss(self, params: Params, batch: Batch) -> Tensor:
        """Mean binary cross-entropy (Eq. 1)."""
        logits = self.pair_scores(params["user"], params["network"], lookup(params["block"], batch.slots))
        if self.config.bce == "logits":
            return batch.bce(logits)
        # From a logit of 17 on the float32 sigmoid is 1: a negative up there is pushed down no more.
        return batch.mean(binary_cross_entropy(logits.sigmoid(), batch.labels, reduction="none"))

    def train_by(
        self, fit: Fit, task: Task, private: ClientState, payload: Payload, samples: Samples, round: int
    ) -> tuple[Payload, Tensor]:
        """Eq. 7 on the touched rows; the others feel nothing but the pull, whose effect has a closed form.

        A client that goes on with its own table and gets no r_u is not drawn anywhere.
        """
        c, table = self.config, tensor(payload, "items")
        guided, n_items = "target" in payload, table.shape[1]
        block = take_rows(table, samples)
        params, problem = self.private_params(private, samples) | {"block": block}, self.problem(round)
        if guided:
            target = tensor(payload, "target")
            params["target"] = torch.where(samples.valid_rows[:, :, None], take_rows(target, samples), block)
            problem = Pulled(problem, c.reg / (n_items * c.dim))
        rates = {"user": c.user_rate, "network": c.lr, "block": c.item_rate(n_items)}
        value = fit(problem, params, samples, c.schedule, [Step(tuple(rates), rates, c.optimizer)])
        if guided:
            taken = c.epochs * ((samples.counts + c.batch_size - 1) // c.batch_size)
            left = torch.tensor(1 - c.pull(n_items), device=table.device) ** taken
            after = torch.lerp(target, table, left[:, None, None])
        else:
            after = table.clone()
        put_rows(after, samples, block)
        # The tuned table is used with these private parts only, which change with it: its scores are all that is kept.
        own = by_chunks(self.pair_scores, after, params["user"], params["network"])
        private.write({"user": params["user"], "network": params["network"], "own": own})
        return {"items": after.sub_(table)}, value

    def step(self, task: Task, server: State, uploads: list[Upload], round: int) -> State:
        """Eq. 3-6: R = A^l X, r_u its rows, and their mean as the common table. Needs all tables at once."""
        if not uploads:
            return server
        ids = [upload.clients for upload in uploads]
        tables = [tensor(upload.parts, "items").add_(server["items"]) for upload in uploads]  # no second copy of them
        who = torch.cat(ids).to(server["items"].device)
        links, kept = self._links(server, tables, who, round)
        for _ in range(self.config.layers):
            tables = [mix(links, tables)]
        personal = tables[0]
        targets = server["targets"].index_copy(0, who, personal)
        known = server["known"].index_fill(0, who, True)
        return server | kept | {"items": personal.mean(0), "targets": targets, "known": known}

    def _links(self, server: State, tables: list[Tensor], who: Tensor, round: int) -> tuple[Tensor, State]:
        c = self.config
        if round % c.graph_every:
            return graphs.normalised(server["graph"][who][:, who]), {}
        near = graphs.closeness(tables, c.graph)
        links = graphs.adjacency(near, c.rule, gamma=c.gamma, k=c.k, quantile=c.quantile)
        if c.graph_every == 1:
            return links, {}
        kept = torch.zeros_like(server["graph"])
        kept[who[:, None], who] = links
        return links, {"graph": kept}

    @property
    def views(self) -> tuple[str, ...]:
        """The tables that are not ``score_table``."""
        return tuple(name for name in ("own", "global", "r") if name != self.config.score_table)

    def scores(self, task: Task, private: ClientState, payload: Payload) -> Tensor:
        """Scores with the table of the setting."""
        return self.view_scores(task, self.config.score_table, private, payload)

    def view_scores(self, task: Task, view: str, private: ClientState, payload: Payload) -> Tensor:
        """Scores with the client's tuned table (``own``), the common one (``global``) or r_u (``r``)."""
        if view == "own":
            return private["own"]
        table = tensor(payload, "target" if view == "r" and "target" in payload else "items")
        return by_chunks(self.pair_scores, table, private["user"], private["network"])
