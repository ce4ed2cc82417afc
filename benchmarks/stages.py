"""Two versions of fedrec on the same rows of the shape shop-200k, one after the other: seconds of every stage.

``python benchmarks/stages.py src PATH/TO/OLDER/src`` measures each source tree in a process of its own, on rows made by the fedrec that is installed.
"""

# ruff: noqa: I001
from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

SIZES = (200_000, 20_000, 6_000_000)
CHOICES: dict[str, Any] = {"dim": 16, "epochs": 2, "batch_size": 256, "optimizer": "adam", "negatives": 4}


def make(folder: Path) -> None:
    """Write the rows, as arrays and as a CSV that every version reads."""
    from fedrec.data.synthetic import synthetic

    data = synthetic(*SIZES)
    np.savez(folder / "rows.npz", users=data.users, items=data.items, times=data.timestamps)
    columns = (data.users, data.items, np.ones(len(data), np.int8), 1_000_000_000 + np.asarray(data.timestamps))
    with (folder / "rows.csv").open("w") as file:
        file.write("user,item,rating,timestamp\n")
        np.savetxt(file, np.stack(columns, axis=1), fmt="%d", delimiter=",")


def took(name: str, work: Callable[[], Any]) -> Any:
    """Time one stage."""
    start, spent = time.perf_counter(), cpu_seconds()
    found = work()
    print(f"  {name:12} {time.perf_counter() - start:6.2f} s, CPU {cpu_seconds() - spent:6.2f} s", flush=True)
    return found


def cpu_seconds() -> float:
    """Of this process and those it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def peak_mb(who: int) -> int:
    """Most memory that was held at a time, as Linux counts it."""
    return resource.getrusage(who).ru_maxrss // 1024


def stages(folder: Path) -> None:
    """Every stage with the version that is on the path."""
    command = [sys.executable, "-m", "fedrec", "data", "stats", str(folder / "rows.csv"), "--json"]
    took(
        "data stats", lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    )
    print(f"  its peak memory: {peak_mb(resource.RUSAGE_CHILDREN)} MB")
    import fedrec  # noqa: F401  before torch, so that its threads sleep while they wait
    import torch

    from fedrec.data import Interactions
    from fedrec.evaluation import Evaluator
    from fedrec.federation.trainer import Setup
    from fedrec.methods import create
    from fedrec.protocol import preset

    torch.set_num_threads(2)
    rows = np.load(folder / "rows.npz")
    ids = tuple(range(SIZES[0])), tuple(range(SIZES[1]))
    data = Interactions(rows["users"], rows["items"], None, rows["times"], *ids, "shop")
    split = took("split", lambda: preset("honest").split(data, seed=0))
    trainer = took("trainer", lambda: create("fedmf", **CHOICES).trainer(split.training, Setup()))
    evaluator = Evaluator(split, torch.device("cpu"), logits=trainer.logits)
    for number in range(4):  # the first two compile and warm up
        report = took(f"round {number}", lambda number=number: trainer.round(number))
        print("   ", ", ".join(f"{name} {seconds:.2f}" for name, seconds in report.seconds.items()))
    order = {"order": trainer.client_order}
    for _ in range(2):
        took("evaluation", lambda: evaluator.evaluate(trainer.scores, "validation", "test", **order))
    lists_order = order if "order" in evaluator.top.__code__.co_varnames else {}
    for _ in range(2):
        took("lists", lambda: evaluator.top(trainer.scores, 10, **lists_order))
    print(f"  peak memory: {peak_mb(resource.RUSAGE_SELF)} MB", flush=True)


def main() -> None:
    """Measure every tree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trees", nargs="*", default=["src"], help="source trees, the newest first")
    parser.add_argument("--here", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        stages(Path(given.here))
        return
    with TemporaryDirectory() as folder:
        make(Path(folder))
        for tree in given.trees:
            print(tree, flush=True)
            environment = os.environ | {"PYTHONPATH": str(Path(tree).resolve())}
            subprocess.run([sys.executable, __file__, "--here", folder], check=True, env=environment)


if __name__ == "__main__":
    main()
