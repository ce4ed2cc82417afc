"""Puts together the result of a finished run."""

from __future__ import annotations

import platform
import sys

import numpy as np
import torch
from numpy.typing import NDArray

from fedrec.compute.memory import peak_mb
from fedrec.evaluation.evaluator import Evaluation
from fedrec.evaluation.groups import by_group, coverage, gini, sparsity_groups
from fedrec.federation.recommender import Recommender
from fedrec.federation.result import (
    Bytes,
    ClientGroup,
    FinalMetrics,
    FlatMetrics,
    GroupMean,
    Metrics,
    PrivacyReport,
    Result,
    Sampled,
    Seconds,
    ViewMetrics,
)
from fedrec.protocol.choices import Choices
from fedrec.running.history import History
from fedrec.running.run_state import RunState
from fedrec.running.selection import Best
from fedrec.version import installed_version


def build_result(
    method: Recommender,
    state: RunState,
    best: Best,
    privacy: dict[str, object] | None,
    device: torch.device,
    versions: dict[str, str],
) -> Result:
    """Everything worth knowing about a finished run; the trainer holds the selected round's state."""
    split, trainer, history, final = state.split, state.trainer, state.history, state.selection.final
    protocol = split.protocol
    work = work_of(history)
    top = state.selection.top(10)
    result = Result(
        **dict(state.claim.identity),
        label=method.label,
        sees=method.sees,
        history_at_test=protocol.history_at_test if trainer.folds_in else "train",
        rounds=history.rounds,
        selected_round=best.round,
        model_round=best.round if best.state is not None else history.rounds,
        selected_on=selected_on(protocol, state.claim.evaluate_every),
        users=split.data.n_users,
        items=split.data.n_items,
        filtered=split.filtered,
        validation=_flat(best.results["validation"]),
        test=_metrics(best.results["test"]),
        sample=None
        if state.claim.evaluate_users is None
        else _sampled(best.results["test"], state.selection.evaluated),
        final=FinalMetrics(validation=_flat(final["validation"]), test=_metrics(final["test"])),
        groups=_sparsity(best.results["test"], split.training.positives.counts),
        catalogue={"coverage@10": coverage(top, split.data.n_items), "gini@10": gini(top, split.data.n_items)},
        seconds=Seconds(total=history.total(state.start), per_round=work / max(1, history.rounds), **history.phases),
        clients_per_second=history.trained_clients / work if work else None,
        bytes=bytes_of(history),
        private_state_mb=trainer.private_bytes / 1e6,
        peak_memory_mb=state.shares.most(peak_mb(device)),
        device=str(device),
        threads=torch.get_num_threads(),
        processes=state.shares.peers.size,
        versions=versions,
        views={
            view: ViewMetrics(test=_metrics(best.results[f"test@{view}"]), final=_metrics(final[f"test@{view}"]))
            for view in trainer.views
        },
        client_groups={
            name: _client_group(best.results, clients.cpu().numpy())
            for name, clients in trainer.client_groups().items()
        },
        diagnostics=trainer.diagnostics(),
        held_out_in_training=split.held_out_in_training,
        privacy=None if privacy is None else PrivacyReport.model_validate(privacy),
    )
    return result.model_copy(update={"tables": method.tables(result)})


def selected_on(protocol: Choices, every: int) -> str:
    """What chose the round, and among which rounds."""
    if protocol.holdout == "nothing":
        return "the last round, as nothing is held out"
    kind = protocol.select_ranking + ("" if every == 1 else f", of every {every} rounds")
    return f"{protocol.select_on} {protocol.select_metric} ({kind})"


def work_of(history: History) -> float:
    """Seconds of sampling, training and aggregation."""
    return sum(history.seconds.get(name, 0.0) for name in ("sampling", "training", "aggregation"))


def bytes_of(history: History) -> Bytes:
    """What crossed between clients and server."""
    visits = max(1, history.trained_clients)
    return Bytes(
        up_per_client_round=history.bytes_up / visits,
        down_per_client_round=history.bytes_down / visits,
        up_total=history.bytes_up,
        down_total=history.bytes_down,
    )


def _sampled(test: Evaluation, users: int) -> Sampled:
    """The margin of each mean: 1.96 standard errors, smaller the more of all users are in the sample."""

    def margin(values: NDArray[np.float64]) -> float:
        known = values[~np.isnan(values)]
        if len(known) < 2:
            return float("nan")
        left_out = 1 - users / len(values)
        return float(1.96 * known.std(ddof=1) * (left_out / len(known)) ** 0.5)

    kinds = {"sampled": test.sampled, "full": test.full}
    return Sampled(
        users=users,
        margin=Metrics(**{kind: {name: margin(v) for name, v in found.items()} for kind, found in kinds.items()}),
    )


def _metrics(evaluation: Evaluation) -> Metrics:
    return Metrics(**evaluation.means())


def _flat(evaluation: Evaluation) -> FlatMetrics:
    means = evaluation.means()
    return FlatMetrics(full=means["full"], **(means["sampled"] or means["full"]))


def _sparsity(test: Evaluation, counts: NDArray[np.int64]) -> dict[str, list[GroupMean]]:
    groups = sparsity_groups(counts)
    return {
        name: [GroupMean(**vars(found)) for found in by_group(value, groups)]
        for name, value in (test.sampled or test.full).items()
    }


def _client_group(results: dict[str, Evaluation], clients: NDArray[np.int64]) -> ClientGroup:
    """Validation and test metrics over some clients; a group of nobody has none."""
    if not len(clients):
        return ClientGroup(clients=0)
    means = {}
    for part in ("validation", "test"):
        kinds = (results[part].sampled, results[part].full)
        means[part] = _metrics(Evaluation(*({name: value[clients] for name, value in kind.items()} for kind in kinds)))
    return ClientGroup(clients=len(clients), **means)


def versions() -> dict[str, str]:
    """Of what the numbers depend on; asked for before training, as all that could fail."""
    names = ("fedrec", "torch", "numpy")
    return {name: installed_version(name) for name in names} | {
        "python": platform.python_version(),
        "platform": sys.platform,
    }
