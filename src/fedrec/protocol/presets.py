"""The named protocols: one honest default, and what published code does."""

from __future__ import annotations

import json
import re

from fedrec.errors import ConfigError, unknown
from fedrec.protocol.protocol import Protocol
from fedrec.settings import read_value

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
    """The preset of that name, with other choices where they are named: ``honest:history_at_test=train+validation,candidates=0``."""
    if isinstance(name, Protocol):
        return name
    base, sign, choices = name.partition(":")
    if base not in PRESETS:
        raise ConfigError(unknown("protocol", base, PRESETS))
    pairs = [pair.partition("=") for pair in re.split(r",(?=\s*\w+\s*=)", choices)] if sign else []
    if not all(key.strip() and equals for key, equals, _ in pairs):
        raise ConfigError(
            f"'{name}' is no protocol; choices follow its name as in honest:candidates=0,min_interactions=5."
        )
    options = {key.strip(): read_value(text.strip()) for key, _, text in pairs}
    if len(options) < len(pairs):
        raise ConfigError(f"'{name}' makes a choice twice; leave one out.")
    return PRESETS[base].with_options(**options) if options else PRESETS[base]


def spelled(protocol: Protocol) -> str:
    """The name, with choices, that ``preset`` reads as this protocol."""
    base = protocol.name.rstrip("*")
    usual = preset(base).model_dump(mode="json")
    changed = {key: value for key, value in protocol.model_dump(mode="json").items() if value != usual[key]}
    changed.pop("name", None)
    words = [f"{key}={x if isinstance(x, str) else json.dumps(x)}" for key, x in changed.items()]
    return ":".join([base, *filter(None, [",".join(words)])])
