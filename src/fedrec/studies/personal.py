"""Do personal gains beat shared ones, with all else equal: ``python -m fedrec.studies.personal DATA... [--seeds N] [--personal P...]``.

``fedgains`` is trained once per seed. Its clients then score with their own gains, more or less free to differ, and with the shared gains that
are most likely for all (personal 0); ``fedslist`` is what both are built on. Every user's value is the mean over seeds, differences are
paired over users.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedrec.data.loading import load_any
from fedrec.evaluation.evaluator import Evaluator, Part
from fedrec.evaluation.significance import compare
from fedrec.federation.trainer import Setup
from fedrec.methods import create
from fedrec.protocol import HONEST
from fedrec.running.files import write_json

PARTS: tuple[Part, ...] = ("validation", "test")
SHARED, BASE = "fedgains, shared gains", "fedslist"
Values = dict[str, dict[str, NDArray[np.float64]]]


def settings(personal: list[float]) -> dict[str, tuple[str, dict[str, float]]]:
    """What is compared, by its name: method and settings."""
    own = {f"fedgains, personal {p:g}": ("fedgains", {"personal": p}) for p in personal}
    return {BASE: ("fedslist", {}), **own, SHARED: ("fedgains", {"personal": 0.0})}


def measured(data: str, seed: int, personal: list[float]) -> Values:
    """Every user's NDCG@10 over all items, by what is compared and part."""
    interactions, _ = load_any(data, None)
    split, found, trained = HONEST.split(interactions, seed=seed), Values(), dict[str, dict[str, torch.Tensor]]()
    evaluator = Evaluator(split)
    for name, (kind, options) in settings(personal).items():
        method = create(kind, options, data=data)
        trainer = method.trainer(split.training, Setup(seed, torch.device("cpu")))
        rounds = range(method.rounds)
        if kind in trained:  # how far gains are personal matters when scoring only, but for the best shared ones
            trainer.load_state(trained[kind])
            rounds = rounds[1:-1] if options["personal"] == 0 else rounds[:0]
        for number in rounds:
            trainer.round(number)
        trained.setdefault(kind, {name: value.clone() for name, value in trainer.state().items()})
        values = evaluator.evaluate(trainer.scores, *PARTS, order=trainer.client_order)
        found[name] = {part: values[part].full["ndcg@10"] for part in PARTS}
    return found


def record(data: str, seeds: int, personal: list[float]) -> dict[str, Any]:
    """Means, and differences to what the others are built on and to shared gains."""
    runs = [measured(data, seed, personal) for seed in range(seeds)]
    values = {name: {part: np.mean([run[name][part] for run in runs], 0) for part in PARTS} for name in runs[0]}
    rows = []
    for name, found in values.items():
        row: dict[str, Any] = {"name": name}
        for part in PARTS:
            there = ~np.isnan(found[part])
            row[part] = float(found[part][there].mean())
            for other in (BASE, SHARED):
                if name in (other, BASE):
                    continue
                pair = {"a": found[part][there], "b": values[other][part][there]}
                (test,) = compare(pair, "b")
                row[f"{part} - {other}"] = [test.difference, test.low, test.high, test.wilcoxon_p]
        rows.append(row)
    return {"data": data, "seeds": seeds, "rows": rows}


def table(records: list[dict[str, Any]]) -> str:
    """All records as Markdown."""
    head = ["data", "scores", *(f"{part}{minus}" for part in PARTS for minus in ("", f" - {BASE}", " - shared gains"))]
    lines = [head, ["---", "---", *("---:" for _ in head[2:])]]
    for found in records:
        for row in found["rows"]:
            cells = [f"{found['data']}", row["name"]]
            for part in PARTS:
                cells += [f"{row[part]:.4f}", _said(row.get(f"{part} - {BASE}")), _said(row.get(f"{part} - {SHARED}"))]
            lines.append(cells)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _said(test: list[float] | None) -> str:
    if test is None:
        return ""
    difference, low, high, p = test
    return f"{difference:+.4f} ({low:+.4f} to {high:+.4f}; p {'< 0.001' if p < 0.001 else f'{p:.3f}'})"


def main() -> None:
    """Measure, write the records and print the table; without data sets, the table of the records that are there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="*")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--personal", type=float, nargs="*", default=[0.3, 1.0, 3.0])
    parser.add_argument("--out", type=Path, default=Path("docs/results/personal/records.json"))
    given = parser.parse_args()
    records = json.loads(given.out.read_text(encoding="utf-8"))["records"] if given.out.exists() else []
    for data in given.data:
        records = [known for known in records if known["data"] != data]
        records.append(record(data, given.seeds, given.personal))
        write_json(given.out, {"records": records})
    print(table(records))


if __name__ == "__main__":
    main()
