"""The named protocols: one honest default, and what published code does."""

from __future__ import annotations

from fedrec.errors import ConfigError, unknown
from fedrec.protocol.protocol import Protocol

HONEST = Protocol()

PAPER = Protocol(
    name="paper",
    duplicates="keep",
    ties="first",
    untimed="item",
    pool="all",
    candidate_draw="shared",
    rank_ties="pessimistic",
    scores="sigmoid",
    select_on="test",
    select_metric="hr@10",
    select_ranking="sampled",
    select_later=True,
)

PFEDREC = Protocol(
    name="pfedrec",
    min_interactions=5,
    duplicates="keep",
    ties="first",
    untimed="item",
    pool="all",
    candidate_draw="disjoint",
    rank_ties="pessimistic",
    scores="sigmoid",
    select_metric="hr@10",
    select_ranking="sampled",
    select_later=True,
)

HETEFEDREC = Protocol(
    name="hetefedrec",
    min_interactions=5,
    holdout="ratio",
    order="random",
    candidates=0,
    select_metric="ndcg@20",
    metrics=(),
    full_metrics=("recall@20", "ndcg@20", "hr@10", "ndcg@10"),
)

PRESETS = {preset.name: preset for preset in (HONEST, PAPER, PFEDREC, HETEFEDREC)}

SUMMARIES = {
    "honest": "default; negatives from outside the training items, round chosen on validation, full ranking beside 99 candidates",
    "paper": "what FedEM's released code does; only to reproduce published numbers",
    "pfedrec": "what PFedRec's and GPFedRec's released code does; only to reproduce published numbers",
    "hetefedrec": "80/20 per user, full ranking, Recall@20 and NDCG@20, honest negatives",
}


def preset(name: str | Protocol) -> Protocol:
    """The preset of that name."""
    if isinstance(name, Protocol):
        return name
    if name not in PRESETS:
        raise ConfigError(unknown("protocol", name, PRESETS))
    return PRESETS[name]
