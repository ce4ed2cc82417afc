"""Settings of HeteFedRec: its switches, the paper's baselines as modes, and the rows of a study."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from fedrec.federation.config import PartialConfig, SampledConfig, Width
from fedrec.federation.search import Range, Space
from fedrec.parts.merger import MergeSettings
from fedrec.parts.merging import Mode

Base = Literal["ncf", "lightgcn", "mf"]
Rule = Literal["sum", "mean", "touched"]
"""Changes of a table are added up, or averaged over the clients that have its columns, or over those that touched a row."""
Relation = Literal["cosine", "euclidean"]
Role = Literal[
    "hetefedrec", "direct", "clustered", "standalone", "all_small", "all_medium", "all_large", "all_large_exclusive"
]
ROWS: dict[str, dict[str, Any]] = {
    "All Small": {"mode": "all_small"},
    "All Medium": {"mode": "all_medium"},
    "All Large": {"mode": "all_large"},
    "All Large-Exclusive": {"mode": "all_large_exclusive"},
    "Standalone": {"mode": "standalone"},
    "Clustered": {"mode": "clustered"},
    "Directly Aggregate": {"mode": "direct"},
    "HeteFedRec - RESKD - DDR": {"reskd": False, "ddr": False},
    "HeteFedRec - RESKD": {"reskd": False},
    "HeteFedRec": {},
    "HeteFedRec + elastic merging": {"merge": "elastic"},
}
"""The settings of every row of a study; HeteFedRec without UDL, DDR and RESKD is Directly Aggregate."""


class HeteFedRecConfig(MergeSettings, SampledConfig, PartialConfig):
    """Settings of HeteFedRec; no code is public, so each point that the paper leaves open is an option here."""

    space: ClassVar[Space] = {
        "lr": Range(0.1, 10.0, log=True),
        "lr_theta": Range(3e-4, 0.03, log=True),
        "lr_user": Range(1.0, 100.0, log=True),
    }

    mode: Role = "hetefedrec"
    """The method, or one of the paper's baselines."""
    base: Base = "ncf"
    """Base model."""
    sizes: tuple[int, ...] = (8, 16, 32)
    """Embedding sizes, increasing; any number of them."""
    sizing: Literal["ratio", "random", "interactions", "memory", "assignment"] = "ratio"
    """Who gets which size: by rank of training items, at random, by a budget of items or memory, or as given."""
    ratio: tuple[float, ...] | None = None
    """Shares of the clients per size (``ratio`` and ``random``); None: 5:3:2 of three sizes, equal ones of others."""
    items_per_column: float = Field(5.0, gt=0)
    """Training items a client needs per embedding column (``sizing=interactions``)."""
    memory_mb: float | tuple[float, ...] | None = None
    """Memory for model and update, of every client or of each one (``sizing=memory``)."""
    assignment: tuple[int, ...] | None = None
    """Size of each client, in client order (``sizing=assignment``)."""
    clients_per_round: int = Field(256, ge=1)
    """Every global epoch shuffles the clients and walks through them in blocks of so many."""
    participation: float = Field(1.0, gt=0, le=1)
    """Share of clients that a global epoch visits."""
    local: Literal["gradient", "epochs"] = "gradient"
    """One full-batch gradient per visit, or ``epochs`` of local training and an upload of the change."""
    epochs: int = Field(5, ge=1)
    """Local epochs (``local=epochs``)."""
    batch_size: int = Field(256, ge=1)
    """Samples per local step (``local=epochs``)."""
    optimizer: Literal["adam", "sgd"] = "adam"
    """Of local epochs."""
    lr: float = Field(3.0, gt=0)
    """Step of item tables: the server's on gradients (Adam's there: 0.01), or the clients' in local epochs (0.001)."""
    lr_theta: float | None = Field(0.003, gt=0)
    """Step of the predictors, to which every client of a round adds a gradient; None, as with Adam or epochs: ``lr``."""
    lr_user: float | None = Field(10.0, gt=0)
    """Step of the user vectors, which move once per global epoch (with Adam 0.1); None, as in local epochs: ``lr``."""
    lr_own: float | None = Field(None, gt=0)
    """Step on single gradients of a table that only its client moves (standalone, merging); None: ``lr``."""
    user_optimizer: Literal["sgd", "adam"] = "sgd"
    """How user vectors follow single gradients; Adam keeps its moments on the client."""
    agg: Rule | None = None
    """Sum, mean over contributors, or mean over those that touched a row; default sum of gradients, mean of changes."""
    server_optimizer: Literal["sgd", "adam"] = "sgd"
    """The server adds what it combined, or feeds it to Adam (betas 0.9, 0.98)."""
    redraw: bool = False
    """Draw negatives anew at every visit instead of once."""
    hidden: tuple[Width, ...] = (8, 8)
    """Hidden layers of the predictor."""
    growing: bool = False
    """Hidden layers grow in proportion to the embedding size."""
    layers: int = Field(1, ge=1)
    """Depth of LightGCN."""
    propagate: Literal["both", "user_only"] = "both"
    """LightGCN on users and items, or items keep their own embeddings."""
    udl: bool = True
    """Clients train every smaller model inside their own."""
    udl_weights: Literal["sum", "mean"] = "sum"
    """Losses of all sizes are added, or averaged."""
    separate_users: bool = False
    """One user vector per size instead of the first columns of one."""
    ddr: bool = True
    """Decorrelate the columns of all tables but the smallest."""
    alpha: float = Field(0.1, ge=0)
    """Weight of the decorrelation penalty, normalised to at most 1."""
    ddr_columns: Literal["all", "outer"] = "all"
    """Penalise the whole table, or only the columns the smallest table lacks."""
    ddr_rows: float = Field(1.0, gt=0, le=1)
    """Share of the items, redrawn every round, the penalty looks at."""
    reskd: bool = True
    """Distil relations between the server's tables."""
    reskd_every: int = Field(1, ge=1)
    """Rounds (blocks of clients) between distillations."""
    reskd_items: float = Field(0.1, gt=0, le=1)
    """Share of the items, redrawn every time."""
    reskd_steps: int = Field(1, ge=1)
    """Steps of one distillation."""
    reskd_lr: float = Field(0.01, gt=0)
    """Learning rate of distillation."""
    reskd_optimizer: Literal["sgd", "adam"] = "sgd"
    """Of distillation."""
    relation: Relation = "cosine"
    """What is compared between items."""
    nested_init: bool = True
    """Tables start as the first columns of one, or independently."""
    init_std: float = Field(0.01, gt=0)
    """Standard deviation of the initial embeddings."""
    merge: Mode = "replace"
    """Beyond the paper: clients merge the downloaded table of their size with their own."""
    adapter_epochs: int = Field(1, ge=1)
    """Epochs of the adapter phase of merging."""

    @model_validator(mode="before")
    @classmethod
    def _rates(cls, values: dict[str, Any]) -> dict[str, Any]:
        """The default rates above are for single gradients without Adam."""
        if values.get("local") == "epochs":
            return {"lr": 0.001, "lr_theta": None, "lr_user": None} | values
        server = {"lr": 0.01, "lr_theta": None} if values.get("server_optimizer") == "adam" else {}
        users = {"lr_user": 0.1} if values.get("user_optimizer") == "adam" else {}
        return server | users | values

    @property
    def shares(self) -> tuple[float, ...]:
        """``ratio`` or its default."""
        return self.ratio or ((5, 3, 2) if len(self.sizes) == 3 else (1,) * len(self.sizes))

    @model_validator(mode="after")
    def _consistent(self) -> HeteFedRecConfig:
        sizes = self.sizes
        if not sizes or sizes[0] < 1 or any(a >= b for a, b in pairwise(sizes)):
            raise ValueError(f"sizes {list(sizes)} must be positive and increasing")
        if self.ratio is not None and len(self.ratio) != len(sizes):
            raise ValueError(f"ratio has {len(self.ratio)} shares for {len(sizes)} sizes; give one per size")
        if min(self.shares) < 0 or sum(self.shares) <= 0:
            raise ValueError(f"ratio {list(self.shares)} must not be negative and must have a positive share")
        self._check_sizing()
        if unknown := set(self.assignment or ()) - set(sizes):
            raise ValueError(f"assignment names size {min(unknown)}, which is not among sizes {list(sizes)}")
        if self.merge != "replace" and self.mode == "standalone":
            raise ValueError("a standalone client downloads nothing to merge; set merge=replace")
        if min((*self.hidden, *self.adapter_hidden), default=1) < 1:
            raise ValueError("hidden layers need at least one unit")
        return self

    def _check_sizing(self) -> None:
        """What a way of sizing needs is there, and nothing is there that it would ignore."""
        uses = {"ratio": ("ratio", "random"), "memory_mb": ("memory",), "assignment": ("assignment",)}
        for name, ways in uses.items():
            given = getattr(self, name) is not None
            if given and self.sizing not in ways:
                raise ValueError(
                    f"{name} has no effect with sizing={self.sizing}; set sizing={ways[0]} or leave it out"
                )
            if not given and self.sizing in ways and name != "ratio":
                raise ValueError(f"sizing={self.sizing} needs {name}")
        stated = self.memory_mb if isinstance(self.memory_mb, tuple) else (self.memory_mb,)
        if not all(megabytes is None or megabytes > 0 for megabytes in stated):
            raise ValueError("memory_mb must be positive, one number or one per client")
