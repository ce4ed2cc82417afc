"""The result of a federation's run, made from the sums that sites told: the same keys as a simulation's."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fedrec.compute.memory import peak_mb
from fedrec.deploy.federation import Federation
from fedrec.deploy.judge import Best
from fedrec.deploy.run_state import FederationState
from fedrec.deploy.sums import MetricSums
from fedrec.evaluation.groups import coverage_of, gini_of
from fedrec.federation.result import (
    ClientGroup,
    FinalMetrics,
    FlatMetrics,
    GroupMean,
    Metrics,
    PrivacyReport,
    Result,
    Seconds,
    ViewMetrics,
)
from fedrec.running.build_result import bytes_of, selected_on, versions, work_of


def federation_result(
    state: FederationState,
    best: Best,
    shown: Tensor,
    wire: dict[str, Any],
    privacy: PrivacyReport | None,
) -> Result:
    """Everything worth knowing; ``shown`` [m] says how often which item is in a top 10, ``wire`` what sites sent."""
    federation, history, claim = state.federation, state.history, state.claim
    method, protocol, final = federation.method, federation.plan.protocol, state.selection.final
    assert final is not None
    work = work_of(history)
    diagnostics = method.diagnostics(federation.task, federation.server.state, federation.ledger)
    result = Result(
        **dict(claim.identity),
        label=method.label,
        sees=method.sees,
        rounds=history.rounds,
        selected_round=best.round,
        model_round=best.round,
        selected_on=selected_on(protocol, claim.evaluate_every),
        users=federation.task.n_clients,
        items=federation.task.n_items,
        validation=_flat(best.sums, "validation"),
        test=Metrics(**best.sums.means("test")),
        final=FinalMetrics(validation=_flat(final, "validation"), test=Metrics(**final.means("test"))),
        groups=_fifths(best.sums, federation),
        catalogue={"coverage@10": coverage_of(shown), "gini@10": gini_of(shown)},
        seconds=Seconds(total=history.total(state.start), per_round=work / max(1, history.rounds), **history.phases),
        clients_per_second=history.trained_clients / work if work else None,
        bytes=bytes_of(history),
        private_state_mb=federation.private_bytes / 1e6,
        peak_memory_mb=peak_mb(federation.device),
        device="cpu",
        threads=torch.get_num_threads(),
        versions=versions(),
        views={
            view: ViewMetrics(
                test=Metrics(**best.sums.means(f"test@{view}")), final=Metrics(**final.means(f"test@{view}"))
            )
            for view in method.views
        },
        client_groups=_named(best.sums, federation),
        diagnostics=diagnostics | {"federation": wire},
        privacy=privacy,
    )
    return result.model_copy(update={"tables": method.tables(result)})


def _flat(sums: MetricSums, part: str) -> FlatMetrics:
    means = sums.means(part)
    return FlatMetrics(full=means["full"], **(means["sampled"] or means["full"]))


def _fifths(sums: MetricSums, federation: Federation) -> dict[str, list[GroupMean]]:
    """Test values by number of training items; fifths that no site told of are not listed."""
    places = {name: at for at, name in enumerate(federation.groups())}
    found: dict[str, list[GroupMean]] = {}
    ranking = "sampled" if sums.means("test")["sampled"] else "full"
    for row, name in enumerate(sums.names):
        part, which, metric = name.split("|")
        if part == "test" and which == ranking:
            found[metric] = []
            for k in range(1, 6):
                users = int(sums.users[row, places[f"fifth {k}"]])
                if users:
                    mean = float(sums.values[row, places[f"fifth {k}"]]) / users
                    found[metric].append(GroupMean(group=k, size=users, mean=mean))
    return found


def _named(sums: MetricSums, federation: Federation) -> dict[str, ClientGroup]:
    found = {}
    for at, (name, members) in enumerate(federation.groups().items()):
        if name.startswith("group "):
            validation, test = (Metrics(**sums.means(part, at)) for part in ("validation", "test"))
            told = any(not math.isnan(value) for value in test.full.values())
            found[name.removeprefix("group ")] = ClientGroup(
                clients=int(members.sum()), validation=validation if told else None, test=test if told else None
            )
    return found
