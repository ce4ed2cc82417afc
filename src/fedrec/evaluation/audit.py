"""The leak audit: does a protocol give its test items away to a scorer that learns nothing?

The counting scorer ranks an item by how rarely it was drawn as this client's training negative. It knows no tastes, so
under an honest protocol it stays at chance. Where negatives exclude the held-out items, these are the only unseen
items that are never drawn, and counting finds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedrec.data.interactions import Interactions
from fedrec.evaluation.evaluator import Evaluation, Evaluator
from fedrec.protocol.presets import PRESETS, preset
from fedrec.protocol.protocol import Protocol
from fedrec.protocol.split import Split
from fedrec.sampling.negatives import Sampler

NEGATIVES = 4  # per positive and round, as all published code draws


def audit(
    protocol: Protocol | str | Sequence[Protocol | str],
    interactions: Interactions,
    *,
    rounds: Sequence[int] = (1, 10, 100),
    seed: int = 0,
    progress: Callable[[str, int], None] | None = None,
) -> dict[str, Any]:
    """Run the counting scorer under one or several protocols; the result can be written as JSON.

    ``progress`` is called with the protocol's name and the number of finished rounds.
    """
    wanted = [protocol] if isinstance(protocol, Protocol | str) else list(protocol)
    report: dict[str, Any] = {}
    for choice in map(preset, wanted):
        split = choice.split(interactions, seed)
        found: dict[str, Any] = {}
        for number, evaluation in counting_scorer(split, sorted(set(rounds)), progress=progress):
            found[str(number)] = {kind: values for kind, values in evaluation.means().items() if values}
        last = found[str(max(rounds))]
        name = choice.name if choice.name not in report else f"{choice.name} ({len(report) + 1})"
        report[name] = {
            "leaks": choice.leaks,
            "why": list(choice.leak_reasons),
            "chance": chance(split),
            "verdict": _verdict(split, last),
            "split_hash": split.hash,
            "filtered": None if split.filtered is None else split.filtered.model_dump(),
            "rounds": found,
        }
    return {"data": interactions.name, "seed": seed, "protocols": report}


def counting_scorer(
    split: Split, rounds: Sequence[int], *, progress: Callable[[str, int], None] | None = None
) -> Iterable[tuple[int, Evaluation]]:
    """Test results of the counting scorer after each of the given numbers of rounds."""
    view, evaluator = split.training, Evaluator(split, logits=False)
    sampler, counts = Sampler(view), torch.zeros(view.n_clients, view.n_items)
    clients = torch.arange(view.n_clients)
    for number in range(1, max(rounds) + 1):
        for cohort in torch.split(clients, 512):
            samples = sampler.draw(cohort, negatives=NEGATIVES, seed=split.seed, round=number - 1)
            drawn = samples.valid & (samples.labels == 0)
            counts[cohort[0] : cohort[-1] + 1].scatter_add_(1, samples.items.long(), drawn.float())
        if progress is not None:
            progress(split.protocol.name, number)
        if number in rounds:
            yield number, evaluator.evaluate(lambda chosen: -counts[chosen], "test")["test"]


def chance(split: Split) -> dict[str, float]:
    """What random scores get, from the protocol's own tie rule on constant scores with ties averaged."""
    honest_ties = replace(split, protocol=split.protocol.model_copy(update={"rank_ties": "expected"}))
    constant: Callable[[Tensor], Tensor] = lambda clients: torch.zeros(len(clients), split.data.n_items)  # noqa: E731
    means = Evaluator(honest_ties).evaluate(constant, "test")["test"].means()
    return means["sampled"] or means["full"]


def _verdict(split: Split, last: dict[str, dict[str, float]]) -> str:
    values, base = last.get("sampled") or last["full"], chance(split)
    name = "hr@10" if "hr@10" in values else next(iter(values))
    got, expected = values[name], base[name]
    at = f"{name} {got:.3f}, chance {expected:.3f}"
    if got > 2 * expected + 0.02:
        return f"LEAKS: a scorer that learns nothing reaches {at}; results under this protocol prove nothing."
    if split.protocol.leaks:
        return f"leaks by construction ({'; '.join(split.protocol.leak_reasons)}), though counting gains little here: {at}."
    return f"honest: a scorer that learns nothing stays at chance ({at})."


def default_protocols() -> list[str]:
    """The protocols an audit compares unless told otherwise."""
    return list(PRESETS)
