"""Every evaluation choice in one frozen object."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from fedrec.settings import Settings


class Choices(Settings):
    """How data is filtered, split, sampled, ranked and selected. The defaults are the honest protocol."""

    name: str = "honest"
    min_interactions: int = Field(10, ge=1)
    """Users with fewer are dropped (rows, after the duplicate rule)."""
    duplicates: Literal["merge", "keep"] = "merge"
    """Repeated (user, item) rows: keep a pair's earliest row only, or keep them all."""
    holdout: Literal["leave-one-out", "ratio", "global-time", "nothing"] = "leave-one-out"
    """Newest row is test and second newest validation; a share of each user's rows; everything after a date; or nothing at
    all: to train for use, with settings and rounds that were chosen before."""
    order: Literal["time", "random"] = "time"
    """Which rows of a user are held out: its newest ones, or random ones (drawn from the split seed)."""
    test_ratio: float = Field(0.2, gt=0, lt=1)
    """Share of rows held out for test (`ratio` and `global-time`)."""
    validation_ratio: float = Field(0.1, ge=0, lt=1)
    """Share of the remaining rows held out for validation (`ratio` and `global-time`)."""
    ties: Literal["last", "first", "item_id"] = "last"
    """Which of a user's rows with the same time counts as the newest: by row of the file, or by item id."""
    untimed: Literal["random", "file", "item"] = "random"
    """Data without time: hold out random rows, the last rows of the file, or (as FedEM) the items that appear last."""
    pool: Literal["train", "all"] = "train"
    """Training negatives exclude a client's training items, or everything it ever touched (this leaks)."""
    candidates: int = Field(99, ge=0)
    """Never-interacted items the held-out item is ranked against; 0 for full ranking only."""
    candidate_draw: Literal["separate", "disjoint", "shared"] = "separate"
    """Candidates of validation and test: drawn independently, without a common item, or the same for both."""
    rank_ties: Literal["expected", "pessimistic"] = "expected"
    """Equal scores: average over all orders, or the held-out item loses."""
    scores: Literal["logits", "sigmoid"] = "logits"
    """What is ranked: raw scores, or their float32 sigmoid, which saturates and makes ties."""
    history_at_test: Literal["train", "train+validation"] = "train"
    """What a client scores with when its test item is ranked, by methods that can fold items in: training items only, or the
    validation item, too, as is usual in sequential recommendation. Nobody trains on it."""
    select_on: Literal["validation", "test"] = "validation"
    """Which part chooses the reported round (test leaks)."""
    select_metric: str = "ndcg@10"
    select_ranking: Literal["full", "sampled"] = "full"
    select_later: bool = False
    """Among rounds of equal value take the latest instead of the earliest."""
    metrics: tuple[str, ...] = ("hr@10", "ndcg@10")
    """Computed on the sampled candidates."""
    full_metrics: tuple[str, ...] = ("hr@10", "ndcg@10", "recall@20", "ndcg@20")
    """Computed on the full ranking."""

    @model_validator(mode="after")
    def _selectable(self) -> Choices:
        names = self.full_metrics if self.select_ranking == "full" else self.metrics
        if self.select_metric not in names:
            raise ValueError(f"select_metric '{self.select_metric}' is not among the {self.select_ranking} metrics")
        if self.candidates and self.holdout != "leave-one-out":
            raise ValueError("sampled candidates need holdout=leave-one-out; set candidates=0")
        if not self.candidates and self.select_ranking == "sampled":
            raise ValueError("select_ranking='sampled' needs candidates")
        return self

    @property
    def leak_reasons(self) -> tuple[str, ...]:
        """Why results under this protocol are not to be trusted; empty for an honest one."""
        reasons = []
        if self.pool == "all":
            reasons.append(
                "training negatives exclude each client's held-out items, so what was never a negative gives them away"
            )
        if self.select_on == "test":
            reasons.append("the reported round is chosen on the test set")
        return tuple(reasons)

    @property
    def leaks(self) -> bool:
        """Whether this protocol lets the test set into training or selection."""
        return bool(self.leak_reasons)
