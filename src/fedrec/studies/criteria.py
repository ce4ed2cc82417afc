"""Which validation criterion picks settings with the least regret on test: ``python -m fedrec.studies.criteria DATA... [--seeds N]``.

For families of quick models every setting of a grid is fitted once per seed. A criterion picks the setting that is best on validation by
it; its regret is how much less test NDCG@10 (all items) that setting has than the best setting of the grid.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from fedrec.data.loading import load_any
from fedrec.evaluation.evaluator import Evaluator
from fedrec.federation.trainer import Setup
from fedrec.methods import create
from fedrec.protocol import HONEST
from fedrec.running.files import write_json
from fedrec.studies.study import combinations

GRIDS: dict[str, dict[str, list[Any]]] = {
    "slist": {"lam": [30, 100, 300, 1000], "delta_q": [3, 5, 10, 20], "a": [0.3]},
    "ease": {"lam": [20, 50, 100, 200, 500, 1000, 2000, 5000]},
    "itemknn": {"k": [10, 20, 50, 100, 200], "shrink": [0, 10, 100]},
}
ALL = 1_000_000
CRITERIA = {
    "NDCG@10": ("full", "ndcg@10"), "HR@10": ("full", "hr@10"), "NDCG@100": ("full", "ndcg@100"),
    "NDCG over all ranks": ("full", f"ndcg@{ALL}"), "reciprocal rank": ("full", f"mrr@{ALL}"),
    "sampled NDCG@10": ("sampled", "ndcg@10"),
}  # fmt: skip
JUDGE = "NDCG@10"


def measured(data: str, seeds: int) -> Iterator[dict[str, Any]]:
    """One record per family, setting and seed: every criterion on validation, and the judge on test."""
    interactions, _ = load_any(data, None)
    full = tuple(name for ranking, name in CRITERIA.values() if ranking == "full")
    for seed in range(seeds):
        split = HONEST.with_options(full_metrics=full, metrics=("ndcg@10",)).split(interactions, seed=seed)
        evaluator = Evaluator(split)
        for family, grid in GRIDS.items():
            for settings in combinations(grid):
                trainer = create(family, settings).trainer(split.training, Setup(seed, torch.device("cpu")))
                trainer.round(0)
                found = evaluator.evaluate(trainer.scores, "validation", "test", order=trainer.client_order)
                means = {part: value.means() for part, value in found.items()}
                yield {
                    "data": data, "seed": seed, "family": family, "settings": settings,
                    "validation": {name: means["validation"][kind][key] for name, (kind, key) in CRITERIA.items()},
                    "test": means["test"]["full"]["ndcg@10"],
                }  # fmt: skip


def regrets(records: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Mean regret of every criterion by data set, over families and seeds, and over all of them."""
    groups: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault((record["data"], record["family"], record["seed"]), []).append(record)
    found: dict[str, dict[str, list[float]]] = {}
    for (data, _, _), settings in groups.items():
        best = max(record["test"] for record in settings)
        for name in CRITERIA:
            picked = max(settings, key=lambda record: record["validation"][name])
            for place in (data, "all"):
                found.setdefault(name, {}).setdefault(place, []).append(best - picked["test"])
    return {
        name: {place: statistics.fmean(values) for place, values in places.items()} for name, places in found.items()
    }


def table(records: list[dict[str, Any]]) -> str:
    """The regrets as Markdown, the least first."""
    found = regrets(records)
    places = [*dict.fromkeys(record["data"] for record in records), "all"]
    lines = [["criterion on validation", *places], ["---", *("---:" for _ in places)]]
    for name in sorted(found, key=lambda name: found[name]["all"]):
        lines.append([name, *(f"{found[name][place]:.5f}" for place in places)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Measure, write the records and print the table; without data sets, the table of the records that are there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="*")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("docs/results/criteria/records.json"))
    given = parser.parse_args()
    records = json.loads(given.out.read_text(encoding="utf-8"))["records"] if given.out.exists() else []
    for data in given.data:
        records = [record for record in records if record["data"] != data] + list(measured(data, given.seeds))
        write_json(given.out, {"records": records})
    print(table(records))


if __name__ == "__main__":
    main()
