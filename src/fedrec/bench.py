"""How fast is it? Seconds per round, by phase, on real data where present and on synthetic data of known shapes always."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from fedrec.compute.device import resolve_device
from fedrec.compute.memory import peak_mb
from fedrec.data import Interactions, load
from fedrec.errors import AbsentError, ConfigError, FedrecError, unknown
from fedrec.evaluation import Evaluator
from fedrec.federation.trainer import Setup
from fedrec.local.fit import Schedule
from fedrec.methods import create
from fedrec.protocol import preset


@dataclass(frozen=True)
class Case:
    """A method with the settings its speed is quoted for, and the protocol that says what an evaluation is."""

    method: str
    settings: dict[str, Any] = field(default_factory=dict)
    protocol: str = "honest"


_LOCAL = {"dim": 16, "epochs": 10, "batch_size": 256, "optimizer": "adam", "negatives": 4}
CASES: dict[str, Case] = {
    "fedmf": Case("fedmf", _LOCAL),
    "fedem-code": Case("fedem", _LOCAL | {"variant": "code", "early_stop_tol": 0.0}),
    "fedem-paper": Case("fedem", _LOCAL | {"variant": "paper"}),
}
"""What ``fedrec bench`` times unless told otherwise."""
OTHERS: dict[str, Case] = {
    "pfedrec": Case("pfedrec", {"dim": 16}),
    "gpfedrec": Case("gpfedrec", {"dim": 16}),
    "fedrap": Case("fedrap", {"dim": 16, "epochs": 10}),
    "fedncf": Case("fedncf", {"dim": 16, "epochs": 2}),
    "fedfast": Case("fedfast", {"dim": 16}),
    "colr": Case("colr", {"dim": 16}),
    "fedcia": Case("fedcia", {"dim": 16}),
    "hetefedrec": Case("hetefedrec", protocol="hetefedrec"),
    "hetefedrec-elastic": Case("hetefedrec", {"merge": "elastic"}, protocol="hetefedrec"),
    "fedgram": Case("fedgram"),
    "ease": Case("ease"),
}
"""The other methods at their own settings; timed when asked for."""


def synthetic(clients: int, items: int, rows: int, *, seed: int = 0) -> Interactions:
    """Interactions of a given shape: client sizes and item popularity are long-tailed, as in MovieLens."""
    rng = np.random.default_rng(seed)
    size = np.exp(rng.normal(0, 1.1, clients))
    counts = np.clip(20 + size / size.sum() * (rows - 20 * clients), 20, items // 2).astype(np.int64)
    weight = 1 / (np.arange(items) + 20.0)
    # The items with the smallest exponential keys are a weighted sample without replacement.
    chosen = []
    for part in np.array_split(np.arange(clients), max(1, clients * items >> 24)):
        keys = rng.exponential(size=(len(part), items)) / weight
        order = np.argsort(keys, axis=1)
        chosen += [order[row, : counts[client]] for row, client in enumerate(part)]
    users = np.repeat(np.arange(clients), counts).astype(np.int32)
    picked = np.concatenate(chosen).astype(np.int32)
    # Every item appears once at least, so that the number of items is the one asked for.
    picked[rng.permutation(len(picked))[:items]] = np.arange(items)
    keep = np.unique(users.astype(np.int64) * items + picked, return_index=True)[1]
    users, picked = users[np.sort(keep)], picked[np.sort(keep)]
    time_ = rng.permutation(len(users))
    return Interactions(users, picked, None, time_, tuple(range(clients)), tuple(range(items)), f"{clients}x{items}")


SHAPES: dict[str, Callable[[], Interactions]] = {
    "ml-100k": lambda: load("ml-100k"),
    "ml-100k-shape": lambda: synthetic(943, 1682, 100_000),
    "ml-1m-shape": lambda: synthetic(6040, 3706, 1_000_209),
    "4x-shape": lambda: synthetic(4 * 943, 1682, 400_000),
    "16x-shape": lambda: synthetic(16 * 943, 1682, 1_600_000),
}
REAL = ("ml-100k",)
"""Shapes that are data sets, and so may not be here."""
DEFAULT_SHAPES = ("ml-100k", "ml-100k-shape", "ml-1m-shape")


LONG = 15.0
"""A round of more seconds is timed once: noise no longer matters, and patience does."""


def measure(case: str, shape: str, *, rounds: int = 3, device: str = "auto") -> dict[str, Any]:
    """Time some rounds of one case after two that compile and warm up."""
    check_known([case], [shape])
    chosen_device = resolve_device(device)
    chosen = (CASES | OTHERS)[case]
    split = preset(chosen.protocol).split(SHAPES[shape](), seed=0)
    method = create(chosen.method, **chosen.settings)
    trainer = method.trainer(split.training, Setup(device=chosen_device))
    evaluator = Evaluator(split, chosen_device, logits=trainer.logits)
    warm = 2  # some methods do more from the second round on, when there is something to merge
    for number in range(warm):
        start = time.perf_counter()
        trainer.round(number)
    if time.perf_counter() - start > LONG:
        rounds = 1
    reports, seconds, judged = [], [], []
    for number in range(warm, warm + rounds):
        start = time.perf_counter()
        reports.append(trainer.round(number))
        seconds.append(time.perf_counter() - start)
        start = time.perf_counter()
        evaluator.evaluate(trainer.scores, "validation", "test", order=trainer.client_order)
        judged.append(time.perf_counter() - start)
    per_round = float(np.median(seconds))
    phases = {name: float(np.median([r.seconds.get(name, 0.0) for r in reports])) for name in reports[0].seconds}
    counts, schedule = split.training.positives.counts * (1 + method.negatives), method.schedule or Schedule(1, 1 << 30)
    steps = int(np.ceil(counts / schedule.batch_size).sum()) * schedule.epochs
    share = reports[-1].clients / max(1, len(counts))
    return {
        "case": case,
        "shape": shape,
        "clients": split.data.n_users,
        "items": split.data.n_items,
        "rows": len(split.data),
        "seconds_per_round": per_round,
        "phases": phases | {"evaluation": float(np.median(judged))},
        "clients_per_second": reports[-1].clients / per_round,
        "local_steps_per_second": steps * share / per_round,
        "peak_memory_mb": peak_mb(chosen_device),
        "threads": torch.get_num_threads(),
        "device": str(chosen_device),
    }


def check_known(cases: Iterable[str], shapes: Iterable[str]) -> None:
    """Refuse names of cases and shapes that do not exist."""
    for kind, names, known in (("case", cases, CASES | OTHERS), ("shape", shapes, SHAPES)):
        for name in names:
            if name not in known:
                raise ConfigError(unknown(f"benchmark {kind}", name, known))


def run_all(
    cases: list[str], shapes: list[str], *, rounds: int, device: str, threads: int | None
) -> Iterator[dict[str, Any]]:
    """Measure every case on every shape, each in a process of its own, so that peak memory is its own.

    What is not measured says why: ``skipped`` where a data set is not here, ``failed`` for everything else.
    """
    check_known(cases, shapes)
    resolve_device(device)
    for shape in shapes:
        missing = _missing(shape)
        for case in cases:
            if missing:
                yield {"case": case, "shape": shape, "skipped": missing}
            else:
                yield _measure_apart(case, shape, rounds, device, threads)


def _missing(shape: str) -> str:
    """Why the data of a shape are not here; empty if they are. Whatever else is wrong with them every case will say."""
    if shape not in REAL:
        return ""
    try:
        SHAPES[shape]()
    except AbsentError:
        return "the data set is not here"
    except FedrecError:
        pass
    return ""


def _measure_apart(case: str, shape: str, rounds: int, device: str, threads: int | None) -> dict[str, Any]:
    command = [sys.executable, "-m", "fedrec", "bench", "--case", case, "--shape", shape, "--json", "--here"]
    command += ["--rounds", str(rounds), "--device", device]
    command += ["--threads", str(threads)] if threads else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        found: dict[str, Any] = json.loads(done.stdout)["results"][0]
        return found
    said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return {
        "case": case,
        "shape": shape,
        "failed": said[-1].removeprefix("error: ") if said else f"exit code {done.returncode}",
    }
