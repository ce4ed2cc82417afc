"""CoLR: correlated low-rank updates of the item table.

Nguyen, Nguyen, Nguyen, Hoang, Le, Wong, "Towards Efficient Communication and Secure Federated Recommendation System via
Low-rank Training", WWW 2024, arXiv 2401.03748. FedMF whose clients train and upload a factor A of r columns instead of
item rows of d: the row of item i is q_i + A_i B, with one random projection B [r, d] per round that all clients know
from a seed. Under plain SGD this is FedMF with every item gradient projected on the row space of B and scaled by
sqrt(d/r).
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from fedrec.local.fit import Optimizer
from fedrec.local.low_rank import LowRank
from fedrec.method import (
    ClientState,
    LearnedConfig,
    Ledger,
    Payload,
    RowUpdate,
    Samples,
    State,
    Step,
    SumMethod,
    Task,
    Total,
    Upload,
    add_rows,
    broadcast,
    dot,
    step_rows,
    take_rows,
    tensor,
)
from fedrec.parts.aggregation import noise_notes
from fedrec.sampling import streams

Projection = Literal["orthogonal", "gaussian", "row_normalised"]


class CoLRConfig(LearnedConfig):
    """Settings of CoLR."""

    rank: int = Field(4, ge=1)
    """Columns r of the uploaded factor."""
    epochs: int = Field(2, ge=1)
    lr: float = Field(0.5, gt=0)
    optimizer: Optimizer = "sgd"
    """``adam`` works on A and the user vector."""
    averaging: Literal["row", "batch"] | None = None
    """A row's gradient is the mean over its own samples of the batch, or its part of the batch's mean loss; by default
    row for sgd (as released) and batch for adam."""
    l2: float = Field(5e-4, ge=0)
    """Weight (gamma) of the squared norms of the batch's rows and of the user vector in the loss; 0 is off."""
    projection: Projection = "orthogonal"
    """How the random projection is drawn."""
    keep_projection: bool = False
    """One projection for the whole run instead of a new one every round."""
    upload: Literal["touched", "full"] = "touched"
    """The touched rows of A with their numbers, or all of A with a column that marks them: plain sums, as secure
    aggregation needs."""

    @model_validator(mode="after")
    def _rank_fits(self) -> CoLRConfig:
        if self.rank > self.dim:
            raise ValueError(f"rank {self.rank} is above dim {self.dim}; set rank to {self.dim} or less")
        return self


class CoLR(SumMethod):
    """FedMF with low-rank uploads."""

    name = "colr"
    title = "FedMF with low-rank item updates behind one shared random projection"
    paper = "Nguyen et al., WWW 2024"
    private = "user vector (d)"
    uploaded = "low-rank factor of touched item rows (r columns)"
    server_keeps = "item table (m x d)"
    Config = CoLRConfig
    config: CoLRConfig

    def server_state(self, task: Task) -> State:
        """Random item table, and the stream of the projection."""
        c = self.config
        return {
            "items": task.item_table(c.dim, c.init_std),
            "projection": task.common_key(streams.Purpose.OTHER).to(task.device),
        }

    def client_state(self, task: Task, clients: Tensor) -> State:
        """Random user vectors."""
        return {"user": task.client_normal(clients, self.config.dim, std=self.config.init_std)}

    def broadcast(self, task: Task, server: State, clients: Tensor) -> Payload:
        """The item table, and the projection as the key of its random numbers."""
        return {
            "items": broadcast(server["items"], len(clients)),
            "projection": server["projection"].expand(len(clients), 1),
        }

    def _projection(self, key: Tensor) -> Tensor:
        return draw_projection(key, self.config.rank, self.config.dim, self.config.projection)

    def train(
        self, task: Task, private: ClientState, payload: Payload, samples: Samples, round: int
    ) -> tuple[Payload, Tensor]:
        """Train the user vector and A, which starts at 0 every round; upload A."""
        c = self.config
        items = tensor(payload, "items")
        base, user = take_rows(items, samples), private["user"].clone()
        low = base.new_zeros(*samples.rows.shape, c.rank)
        per_row = (c.averaging or ("row" if c.optimizer == "sgd" else "batch")) == "row"
        problem = LowRank(self._projection(tensor(payload, "projection")[0]), per_row, c.l2)
        params, steps = {"user": user, "base": base, "low": low}, [Step(("user", "low"), c.lr, c.optimizer)]
        loss = problem.train(params, samples, c.schedule, steps)
        private["user"] = user
        rows = RowUpdate(samples.rows, samples.row_counts, low, items.shape[1])
        if c.upload == "touched":
            return {"low_rank": rows}, loss
        marked = torch.cat([low, torch.ones_like(low[..., :1])], 2)
        return {"low_rank": RowUpdate(rows.rows, rows.counts, marked, rows.n_items).dense()}, loss

    def privacy_problem(self) -> str | None:
        """Noise on the marks would make them useless as divisors."""
        return "set upload=touched" if self.config.upload == "full" else None

    def privacy_notes(self) -> tuple[str, ...]:
        """Noise lies on every row of A."""
        return noise_notes("touched")

    def contribute(self, task: Task, upload: Upload, total: Total) -> None:
        """A_u, and who touched which row."""
        add_rows(total, upload, "low_rank", "sum" if self.config.upload == "full" else "touched")

    def step(self, task: Task, server: State, total: Total, round: int) -> State:
        """A = mean of A_u per item over the clients that touched it (rule C); Q + A B; then a new projection."""
        c, key = self.config, server["projection"]
        if "low_rank" in total and c.upload == "full":
            marked = total["low_rank"]
            total = Total({"low_rank": marked[:, : c.rank], "low_rank.weight": marked[:, c.rank :]})
        low = step_rows(server["items"].new_zeros(task.n_items, c.rank), total, "low_rank", "touched")
        return {
            "items": server["items"] + low @ self._projection(key),
            "projection": key if c.keep_projection else streams.child(key, 1),
        }

    def diagnostics(self, task: Task, server: State, ledger: Ledger) -> dict[str, Any]:
        """Both accounts of the downlink: a client that was there the round before needs only the last A (m x r)."""
        everybody, consecutive = int(ledger.visits.sum()), int(ledger.consecutive.sum())
        full = 4 * task.n_items * self.config.dim
        saved = consecutive * 4 * task.n_items * (self.config.dim - self.config.rank)
        return {"downlink_bytes": {"full": everybody * full, "consecutive": everybody * full - saved}}

    def scores(self, task: Task, private: ClientState, payload: Payload) -> Tensor:
        """p_u . q_i with the newest table."""
        return dot(private["user"], tensor(payload, "items"))


def draw_projection(key: Tensor, rank: int, dim: int, kind: Projection) -> Tensor:
    """The projection B [rank, dim] of a stream ``key`` [1], float32 on the key's device.

    ``orthogonal`` is the polar factor of a Gaussian matrix times sqrt(d/r), so that B B' = (d/r) I.
    """
    # On the CPU, so that all devices use the same numbers.
    values = streams.normal(key.cpu(), torch.arange(rank * dim)).view(rank, dim)
    if kind == "orthogonal":
        left, _, right = torch.linalg.svd(values, full_matrices=False)
        values = left @ right * math.sqrt(dim / rank)
    elif kind == "gaussian":
        values = values / math.sqrt(rank)
    else:
        values = values / values.norm(dim=1, keepdim=True)
    return values.to(key.device, torch.float32)
