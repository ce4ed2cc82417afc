"""What a finished run leaves behind, as one typed object; ``result.json`` is its plain values.

Every key is always there: what a run does not have is empty (lists, objects), zero or null. Documented in
``docs/result.md``. This module imports nothing of methods or engines, so that methods can use it.
"""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer

from fedrec.data.filtered import Filtered
from fedrec.protocol.protocol import Protocol
from fedrec.settings import finite


def _nan(value: Any) -> Any:
    return math.nan if value is None else value


def _null(value: float) -> float | None:
    return None if math.isnan(value) else value


Value = Annotated[float, BeforeValidator(_nan), PlainSerializer(_null, return_type=float | None, when_used="json")]
"""A mean over clients; NaN, in JSON null, where no client has a value."""


class _Record(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, json_schema_serialization_defaults_required=True
    )


class ResultTable(_Record):
    """A table a method wants printed under its result, in words and numbers as they are to be read."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    """One text per column."""


class Metrics(_Record):
    """Means over clients by metric name, such as ``ndcg@10``."""

    sampled: dict[str, Value] = {}
    """Against the protocol's sampled candidates; empty where it draws none."""
    full: dict[str, Value]
    """Against all items."""


class FlatMetrics(_Record):
    """Means over clients: those against sampled candidates by name (all-item ones where none are drawn), and ``full``."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Value]

    full: dict[str, Value]
    """Against all items."""

    def __getitem__(self, name: str) -> float:
        return self.__pydantic_extra__[name]


class FinalMetrics(_Record):
    """What the state after the last round reaches."""

    validation: FlatMetrics
    test: Metrics


class Sampled(_Record):
    """What only some users were evaluated for."""

    users: int
    confidence: float = 0.95
    margin: Metrics
    """Half the width of the confidence interval of each mean over all users, on test at the selected round."""


class ViewMetrics(_Record):
    """What another way to score reaches on test."""

    test: Metrics
    """At the selected round."""
    final: Metrics
    """After the last round."""


class GroupMean(_Record):
    """Mean of one metric over clients that have about equally many training items."""

    group: int
    """1 is the fifth of the clients with the fewest training items."""
    size: int
    """Clients of the group that have a value."""
    mean: float


class ClientGroup(_Record):
    """A group of clients the method names, such as those of one model size."""

    clients: int
    validation: Metrics | None = None
    """Null for a group of nobody, like ``test``."""
    test: Metrics | None = None


class Seconds(_Record):
    """Time taken; the other keys are the phases of a round, summed over rounds."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, float]

    total: float
    """Of the call, evaluation and checkpoints included."""
    per_round: float
    """Sampling, training and aggregation of one round."""


class Bytes(_Record):
    """What crossed between clients and server."""

    up_per_client_round: float
    down_per_client_round: float
    up_total: int
    down_total: int


class PrivacyReport(_Record):
    """The privacy stage's settings and what they are worth for the client with most uploads."""

    mechanism: str
    clip: float | None
    scale: float
    delta: float
    reproducible: bool
    """Whether the noise follows from the run's seed: then there is no guarantee."""
    epsilon_per_round: float | None
    """Null where there is no guarantee, like ``epsilon_total``."""
    epsilon_total: float | None
    spends_delta: bool
    """Whether ``epsilon_total`` holds at ``delta`` only."""
    most_uploads_of_a_client: int
    assumes: str
    verdict: str
    notes: list[str]
    """What the stage changes in the method."""
    noise_multiplier: float | None = None
    """Noise on sums: its standard deviation in multiples of ``clip``; null for noise on uploads."""
    observer: str | None = None
    """Noise on sums: against whom epsilon is stated, the server or an outsider; null for noise on uploads."""


class Identity(_Record):
    """What makes a run this run: two runs with the same identity give the same numbers. ``run.json`` holds it."""

    format: Literal[1] = 1
    """Version of this form."""
    method: str
    data: str
    protocol: str
    leaks: bool
    """Whether the protocol lets the test set into training or selection."""
    leak_reasons: list[str]
    seed: int
    config: dict[str, Any]
    """The method's settings."""
    config_hash: str
    split_hash: str
    split_seed: int
    protocol_options: Protocol
    source: dict[str, Any]
    """How to find the data again: a name, or a file and its columns."""


class Result(Identity):
    """Everything worth knowing about a finished run."""

    label: str
    """The method's name and the settings that tell its runs apart in a table."""
    sees: str
    """What of the clients' uploads the server saw: nothing, sums only, every upload, or all data."""
    history_at_test: str = "train"
    """What clients scored with when their test items were ranked: their training items, or the validation item, too."""
    rounds: int
    selected_round: int
    """The round whose test values count, chosen by ``selected_on``."""
    model_round: int
    """The round whose state was saved: the last one where a copy of the selected one did not fit into memory."""
    selected_on: str
    users: int
    items: int
    filtered: Filtered | None = None
    """What the protocol's filter kept of the data and what it dropped, and why; null where a split does not say."""
    validation: FlatMetrics
    """At the selected round."""
    test: Metrics
    """At the selected round."""
    final: FinalMetrics
    sample: Sampled | None = None
    """Of a run that evaluated a random sample of its users; null: everybody was."""
    groups: dict[str, list[GroupMean]]
    """Test values by metric and client sparsity."""
    catalogue: dict[str, float]
    """``coverage@10``: share of items in somebody's top 10; ``gini@10``: 0 if all are shown equally often."""
    seconds: Seconds
    clients_per_second: float | None
    bytes: Bytes
    private_state_mb: float
    peak_memory_mb: float
    device: str
    threads: int
    """Of each process."""
    processes: int = 1
    """That shared the clients among them."""
    versions: dict[str, str]
    views: dict[str, ViewMetrics] = {}
    """Other ways to score that the method reports."""
    client_groups: dict[str, ClientGroup] = {}
    diagnostics: Annotated[dict[str, Any], BeforeValidator(finite)] = {}
    """What the method itself has to say; plain values of its own making."""
    held_out_in_training: int = 0
    """Held-out items a client also trains on, where a protocol keeps repeated rows."""
    privacy: PrivacyReport | None = None
    """Null without a privacy stage."""
    tables: list[ResultTable] = []
    """Tables the method wants printed."""

    @property
    def shown_label(self) -> str:
        """The label, with what a reader of a table must know of its history."""
        return self.label if self.history_at_test == "train" else f"{self.label} (knows validation items)"


def metric_title(name: str) -> str:
    """A metric's name as a column is headed: HR@10, Recall@20."""
    kind, _, k = name.partition("@")
    return f"{kind.upper() if kind in ('hr', 'ndcg') else kind.capitalize()}@{k}"


def result_schema() -> str:
    """JSON Schema of ``result.json``, as ``docs/result.schema.json`` holds it."""
    return json.dumps(Result.model_json_schema(mode="serialization"), indent=2) + "\n"
