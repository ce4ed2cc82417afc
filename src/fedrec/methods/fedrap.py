"""FedRAP: additive personalisation.

Li, Long, Zhou, "Federated Recommendation with Additive Personalization", ICLR 2024. A client scores with the sum of its
own item table D_u, which never leaves it, and the common table C: w_u . (D_u[i] + C[i]) + b_u. The loss drives both
tables apart and C to be sparse: BCE - lambda * mean (D - C)^2 + mu * mean |C| over the rows of a batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from fedrec.federation.payload import Part
from fedrec.local.linear import AdditiveTables
from fedrec.method import (
    ClientState,
    Fit,
    LearnedConfig,
    Ledger,
    LocalProblem,
    Params,
    Payload,
    RowUpdate,
    Samples,
    Schedule,
    State,
    Step,
    SumMethod,
    TableMethod,
    Task,
    Total,
    Upload,
    add_rows,
    put_rows,
    step_rows,
    take_rows,
    tensor,
)
from fedrec.parts.linear import init_unit, unit_logits

CURRICULA: dict[str, Callable[[int], float]] = {
    "constant": lambda t: 1.0,
    "tanh": lambda t: math.tanh(t / 10),
    "sin": lambda t: (1 + math.sin(t / 10)) / 2,
    "square": lambda t: float(t // 5 % 2),
    "frac": lambda t: 1 / (t + 1),
}
SMALLEST = 1e-12
"""Below this the scale of a stored table is worked into it."""


class FedRAPConfig(LearnedConfig):
    """Settings of FedRAP; the released code's are the defaults."""

    epochs: int = Field(10, ge=1)
    batch_size: int = Field(2048, ge=1)
    lr: float = Field(0.5, gt=0)
    """Rate of the score unit in the first step of round 1 (lr_network)."""
    lr_args: float = Field(200.0, gt=0)
    """Rate of both item tables in the first step of round 1."""
    optimizer: Literal["sgd"] = "sgd"
    init_std: float = Field(1.0, gt=0)
    l2: float = Field(1e-4, ge=0)
    """Weight decay on everything, untouched rows included."""
    lam: float = Field(0.1, ge=0)
    """Weight lambda of the distance of both tables."""
    mu: float = Field(0.1, ge=0)
    """Weight of the common table's norm."""
    norm: Literal["l1", "l2", "none"] = "l1"
    """Which norm: mean absolute value, mean square, or none."""
    curriculum: Literal["constant", "tanh", "sin", "square", "frac"] = "constant"
    """How lambda and mu change with the round: not, as in the released loss, or tanh(t / 10) as the paper says."""
    step_decay: float = Field(0.95, gt=0, le=1)
    """Factor on both rates after every batch of a round."""
    decay_rate: float = Field(0.97, gt=0, le=1)
    """Factor on both rates after every round."""
    early_stop_tol: float = Field(1e-4, ge=0)
    """A client's round ends when its mean loss changes less, relatively."""
    bias: bool = True
    """Whether the score unit has a bias."""
    soft_threshold: float = Field(0.0, ge=0)
    """Entries of the uploaded table move towards 0 by this much, which makes C truly sparse."""

    @property
    def schedule(self) -> Schedule:
        """With early stop."""
        return Schedule(self.epochs, self.batch_size, self.early_stop_tol)

    @model_validator(mode="after")
    def _stable(self) -> FedRAPConfig:
        if max(self.lr, self.lr_args) * self.l2 >= 1:
            raise ValueError(
                f"weight decay takes everything in one step (lr_args * l2 = {self.lr_args * self.l2:g}, "
                f"lr * l2 = {self.lr * self.l2:g}); keep both below 1"
            )
        return self


@dataclass(frozen=True, eq=False)
class ShrunkTable(RowUpdate):
    """A table of which every row shrank by one factor per client, and the touched rows changed by ``values`` on top."""

    start: Tensor  # [c, m, d]: the download, which the server knows
    factor: Tensor  # [c]

    def dense(self) -> Tensor:
        """The whole table of changes, [c, m, d]."""
        return super().dense() + self.start * (self.factor - 1)[:, None, None]

    @property
    def nbytes(self) -> Tensor:
        """Rows, their indices, and the factor."""
        return super().nbytes + self.factor.element_size()


class FedRAP(TableMethod, SumMethod):
    """Private score unit and item table, plus a common item table."""

    name = "fedrap"
    title = "sum of a private and an averaged item table, private linear score unit"
    paper = "Li, Long, Zhou, ICLR 2024"
    private = "score unit (d + 1), item table (m x d)"
    uploaded = "changes of touched rows of the common item table, one factor for all others"
    server_keeps = "common item table (m x d)"
    Config = FedRAPConfig
    config: FedRAPConfig
    row_names = ("personal",)

    def server_state(self, task: Task) -> State:
        """C ~ N(0, init_std^2)."""
        return {"items": self._draw(task, 1)}

    def client_state(self, task: Task, clients: Tensor) -> State:
        """One score unit and one D ~ N(0, init_std^2) for all. A stored table times its scale is D."""
        n = len(clients)
        return {
            "unit": init_unit(task, clients, self.config.dim, bias=self.config.bias),
            "personal": self._draw(task, 0).expand(n, -1, -1),
            "scale": torch.ones(n, device=task.device),
        }

    def _draw(self, task: Task, number: int) -> Tensor:
        both = task.normal(2, task.n_items, self.config.dim, std=self.config.init_std, generator=task.generator())
        return both[number]

    def weights(self, round: int) -> tuple[float, float, float]:
        """Weights of mean (D - C)^2, |C| and C^2 in this round; the first one counts negatively."""
        c, now = self.config, CURRICULA[self.config.curriculum](round)
        return now * c.lam, now * c.mu * (c.norm == "l1"), now * c.mu * (c.norm == "l2")

    def private_params(self, private: ClientState, samples: Samples) -> Params:
        """The score unit, the touched rows of D, and what weight decay leaves of a row."""
        scale = private["scale"]
        return {
            "unit": private["unit"].clone(),
            "personal": private.take("personal", samples) * scale[:, None, None],
            "shrunk": torch.ones_like(scale),
        }

    def problem(self, round: int) -> LocalProblem:
        """BCE - lambda * mean (D - C)^2 + mu * norm of C, means over samples and columns."""
        return AdditiveTables(*self.weights(round))

    def data_problem(self, round: int) -> LocalProblem:
        """The cross-entropy alone."""
        return AdditiveTables(0, 0, 0)

    def steps(self, samples: Samples, round: int) -> Sequence[Step]:
        """One joint step on the unit and the touched rows of both tables."""
        c = self.config
        now = c.decay_rate**round
        rates = {"unit": c.lr * now} | dict.fromkeys(("personal", "block", "shrunk"), c.lr_args * now)
        return [Step(tuple(rates), rates, "sgd", weight_decay=c.l2, lr_decay=c.step_decay)]

    def train_by(
        self, fit: Fit, task: Task, private: ClientState, payload: Payload, samples: Samples, round: int
    ) -> tuple[Payload, Tensor]:
        """Train both tables; of the rows that no sample touches one factor says what weight decay left."""
        table = tensor(payload, "items")
        params = self.private_params(private, samples) | {"block": take_rows(table, samples)}
        start = params["block"].clone()
        loss = fit(self.problem(round), params, samples, self.config.schedule, self.steps(samples, round))
        shrunk = params["shrunk"]
        scale = private["scale"] * shrunk
        tiny = scale < SMALLEST
        if bool(tiny.any()):
            private["personal"] = private["personal"] * torch.where(tiny, scale, 1)[:, None, None]
            scale = torch.where(tiny, 1, scale)
        private.put("personal", samples, params["personal"] / scale[:, None, None])
        private.write({"unit": params["unit"], "scale": scale})
        part: Part
        if self.config.soft_threshold:
            after = table * shrunk[:, None, None]
            put_rows(after, samples, params["block"])
            part = torch.nn.functional.softshrink(after, self.config.soft_threshold) - table
        else:
            change = params["block"] - start * shrunk[:, None, None]
            part = ShrunkTable(samples.rows, samples.row_counts, change, table.shape[1], table, shrunk)
        return {"items": part}, loss

    def contribute(self, task: Task, upload: Upload, total: Total) -> None:
        """What became of C on every client: C times its factor, plus its change of touched rows."""
        add_rows(total, upload, "items", "uniform")
        part = upload.parts["items"]
        if isinstance(part, ShrunkTable):
            total.add("items", part.start[0] * (part.factor - 1).sum())

    def step(self, task: Task, server: State, total: Total, round: int) -> State:
        """The mean of all C_u."""
        return {"items": step_rows(server["items"], total, "items", "uniform")}

    def scores(self, task: Task, private: ClientState, payload: Payload) -> Tensor:
        """w_u . (D_u[i] + C[i]) + b_u with the newest C."""
        unit = private["unit"]
        own = (private["personal"] @ unit[:, : self.config.dim, None]).squeeze(2)
        return unit_logits(unit, tensor(payload, "items")) + own * private["scale"][:, None]

    def diagnostics(self, task: Task, server: State, ledger: Ledger) -> dict[str, Any]:
        """How sparse the common table became."""
        return {"common_table_zero_share": float((server["items"].abs() <= 1e-4).float().mean())}
