"""What a finished run leaves behind: one object of plain values, the same as ``result.json``."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedrec.compute.memory import peak_mb
from fedrec.evaluation.evaluator import Evaluation
from fedrec.evaluation.groups import by_group, coverage, gini, sparsity_groups
from fedrec.federation.loop import Loop
from fedrec.federation.recommender import Recommender
from fedrec.protocol.split import Split


def build_result(
    method: Recommender,
    split: Split,
    loop: Loop,
    identity: dict[str, Any],
    privacy: dict[str, object] | None,
    device: torch.device,
    total: float,
) -> dict[str, Any]:
    """Everything worth knowing about a finished run, as plain values; the trainer holds the selected round's state."""
    best, history = loop.best, loop.history
    assert best is not None
    rounds, seconds = history.rounds, history.seconds
    work = sum(seconds.get(name, 0.0) for name in ("sampling", "training", "aggregation"))
    per = max(1, history.trained_clients)
    counts = split.training.positives.counts
    groups = sparsity_groups(counts)
    values = best.results["test"].sampled or best.results["test"].full
    top = loop.evaluator.top(loop.trainer.scores, 10)
    result = identity | {
        "label": method.label,
        "rounds": rounds,
        "selected_round": best.round,
        "model_round": best.round if best.state is not None else rounds,
        "selected_on": f"{split.protocol.select_on} {split.protocol.select_metric} ({split.protocol.select_ranking})",
        "users": split.data.n_users,
        "items": split.data.n_items,
        "validation": _flat(best.results["validation"]),
        "test": best.results["test"].means(),
        "final": {"validation": _flat(loop.final["validation"]), "test": loop.final["test"].means()},
        "groups": {name: [vars(g) for g in by_group(value, groups)] for name, value in values.items()},
        "catalogue": {
            "coverage@10": coverage(top, split.data.n_items),
            "gini@10": gini(top, split.data.n_items),
        },
        "seconds": {"total": total, "per_round": work / max(1, rounds)} | {k: v for k, v in seconds.items()},
        "clients_per_second": history.trained_clients / work if work else None,
        "bytes": {
            "up_per_client_round": history.bytes_up / per,
            "down_per_client_round": history.bytes_down / per,
            "up_total": history.bytes_up,
            "down_total": history.bytes_down,
        },
        "private_state_mb": loop.trainer.private_bytes / 1e6,
        "peak_memory_mb": peak_mb(device),
        "device": str(device),
        "threads": torch.get_num_threads(),
        "versions": _versions(),
    }
    views = loop.trainer.views
    if views:
        result["views"] = {
            view: {"test": best.results[f"test@{view}"].means(), "final": loop.final[f"test@{view}"].means()}
            for view in views
        }
    if named := loop.trainer.client_groups():
        result["client_groups"] = {
            name: {"clients": len(clients)} | _group_means(best.results, clients.cpu().numpy())
            for name, clients in named.items()
        }
    if found := loop.trainer.diagnostics():
        result["diagnostics"] = found
    if split.held_out_in_training:
        result["held_out_in_training"] = split.held_out_in_training
    if privacy is not None:
        result["privacy"] = privacy
    return result


def _group_means(results: dict[str, Evaluation], clients: NDArray[np.int64]) -> dict[str, Any]:
    """Validation and test metrics over some clients; a group of nobody has none."""
    means: dict[str, Any] = {}
    for part in ("validation", "test") if len(clients) else ():
        kinds = (results[part].sampled, results[part].full)
        means[part] = Evaluation(*({name: value[clients] for name, value in kind.items()} for kind in kinds)).means()
    return means


def _flat(evaluation: Evaluation) -> dict[str, Any]:
    means = evaluation.means()
    return (means["sampled"] or means["full"]) | {"full": means["full"]}


def _versions() -> dict[str, str]:
    names = ("fedrec", "torch", "numpy")
    return {name: version(name) for name in names} | {
        "python": platform.python_version(),
        "platform": sys.platform,
    }
