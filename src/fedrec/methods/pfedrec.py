"""PFedRec: dual personalisation, of the score function and of the item table.

Zhang, Long, Zhou, Yan, Zhang, Zhang, Yang, "Dual Personalization on Federated Recommendation", IJCAI 2023. A client has
a private linear score unit instead of a user vector; each batch it first steps the unit, then, looking again, the
downloaded table ("post-tuning"), and scores with the table it tuned. The item rate is the released code's.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from fedrec.federation.search import Options, Range, Space
from fedrec.local.linear import LinearUnit
from fedrec.method import (
    AveragedTableMethod,
    ClientState,
    Fit,
    LearnedConfig,
    LocalProblem,
    Payload,
    RowUpdate,
    Rule,
    Samples,
    State,
    Step,
    Task,
    take_rows,
    tensor,
)
from fedrec.parts.linear import init_unit, tuned_scores, unit_logits


class PFedRecConfig(LearnedConfig):
    """Settings of PFedRec; the released code's are the defaults."""

    space: ClassVar[Space] = {
        "lr": Range(0.01, 1.0, log=True),
        "lr_eta": Range(8.0, 800.0, log=True),
        "init_std": Range(0.01, 1.0, log=True),
        "score_table": Options(("own", "global")),
    }

    epochs: int = Field(1, ge=1)
    lr: float = Field(0.1, gt=0)
    """Rate of the score unit (eta)."""
    optimizer: Literal["sgd", "adam"] = "sgd"
    """Of the unit and the rows; with Adam, which looks at no gradient's size, both move at ``lr``."""
    init_std: float = Field(1.0, gt=0)
    lr_eta: float = Field(80.0, gt=0)
    """The item table's rate is lr * items * lr_eta: a row is in few samples, the score unit in all."""
    lr_item: float | None = Field(None, ge=0)
    """The item table's rate itself, instead of the rule above."""

    score_table: Literal["own", "global"] = "own"
    """Score with the table as the client tuned it, or with the newest average; the other one is reported beside it."""

    def item_rate(self, n_items: int) -> float:
        """Learning rate of the item table."""
        usual = self.lr * n_items * self.lr_eta if self.optimizer == "sgd" else self.lr
        return usual if self.lr_item is None else self.lr_item


class PFedRec(AveragedTableMethod):
    """Private score unit, shared item table that each client tunes for itself."""

    name = "pfedrec"
    title = "private linear score unit, averaged item table that clients tune and score with"
    paper = "Zhang et al., IJCAI 2023"
    private = "score unit (d + 1), tuned item table (m x d, of which its m scores are stored)"
    uploaded = "changes of touched item rows"
    server_keeps = "item table (m x d)"
    Config = PFedRecConfig
    config: PFedRecConfig
    private_names = ("unit",)
    table_view = "global"

    @property
    def rule(self) -> Rule:
        """The mean of all tables, whatever their data size; untouched rows have no change."""
        return "uniform"

    def client_state(self, task: Task, clients: Tensor) -> State:
        """One score unit for all, and how it scores the initial table."""
        unit = init_unit(task, clients, self.config.dim)
        items = self.server_state(task)["items"]
        return {"unit": unit, "own": unit_logits(unit[:1], items[None]).expand(len(clients), -1)}

    def problem(self, round: int) -> LocalProblem:
        """Eq. 7 as a mean over the batch."""
        return LinearUnit()

    def train_by(
        self, fit: Fit, task: Task, private: ClientState, payload: Payload, samples: Samples, round: int
    ) -> tuple[Payload, Tensor]:
        """Algorithm 1: per batch a step on the unit, then one on the rows; remember how the tuned table scores."""
        c, table = self.config, tensor(payload, "items")
        unit, block = private["unit"].clone(), take_rows(table, samples)
        start = block.clone()
        steps = [Step(("unit",), c.lr, c.optimizer), Step(("block",), c.item_rate(table.shape[1]), c.optimizer)]
        loss = fit(self.problem(round), {"unit": unit, "block": block}, samples, c.schedule, steps)
        # The tuned table is used with this unit only, and both change together: its scores are all that is needed.
        private.write({"unit": unit, "own": tuned_scores(unit, table, samples, block)})
        return {"items": RowUpdate(samples.rows, samples.row_counts, block - start, table.shape[1])}, loss

    @property
    def views(self) -> tuple[str, ...]:
        """The table that is not ``score_table``."""
        return ("global",) if self.config.score_table == "own" else ("own",)

    def scores(self, task: Task, private: ClientState, payload: Payload) -> Tensor:
        """w_u . e_i + b_u with the table of the setting."""
        return self.view_scores(task, self.config.score_table, private, payload)

    def view_scores(self, task: Task, view: str, private: ClientState, payload: Payload) -> Tensor:
        """Scores with the client's tuned table (``own``) or the newest average (``global``)."""
        return private["own"] if view == "own" else unit_logits(private["unit"], tensor(payload, "items"))
