"""How fast is it? Seconds per round, by phase, on real data where present and on synthetic data of known shapes always."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, TypeVar

import numpy as np
import pyarrow
import pyarrow.csv
import torch

from fedrec.compute.device import resolve_device
from fedrec.compute.memory import peak_mb
from fedrec.data import Interactions, load
from fedrec.data.synthetic import synthetic
from fedrec.errors import AbsentError, ConfigError, FedrecError, unknown
from fedrec.evaluation import Evaluator
from fedrec.federation.trainer import RoundReport, Setup
from fedrec.local.fit import Schedule
from fedrec.methods import create
from fedrec.protocol import preset

Result = TypeVar("Result")


@dataclass(frozen=True)
class Case:
    """A method with the settings its speed is quoted for, and the protocol that says what an evaluation is.

    Without a method it ends with the split.
    """

    method: str | None
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
    "fedem-paper-near": Case("fedem", _LOCAL | {"variant": "paper", "sketch": 512, "rank": 8}),
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
    "pfedrec-elastic": Case("pfedrec", {"dim": 16, "merge": "elastic"}),
    "fedncf-elastic": Case("fedncf", {"dim": 16, "epochs": 2, "merge": "elastic"}),
    "lightgcn": Case("lightgcn", {"dim": 64, "layers": 3}),
    "sasrec": Case("sasrec", {"dim": 128, "block": 256}),
    "fedsasrec": Case("fedsasrec", {"dim": 128, "block": 256}),
    "fedslist": Case("fedslist"),
}
"""The other methods at their own settings, and FedEM with approximations; timed when asked for."""
LARGE: dict[str, Case] = {
    "fedmf-2-epochs": Case("fedmf", _LOCAL | {"epochs": 2}),
    "fedmf-1-percent": Case("fedmf", _LOCAL | {"epochs": 2, "participation": 0.01}),
    "split": Case(None),
}
"""What large shapes are timed with."""
EVERY_CASE = CASES | OTHERS | LARGE


SHAPES: dict[str, Callable[[], Interactions]] = {
    "ml-100k": lambda: load("ml-100k"),
    "ml-100k-shape": lambda: synthetic(943, 1682, 100_000),
    "ml-1m-shape": lambda: synthetic(6040, 3706, 1_000_209),
    "4x-shape": lambda: synthetic(4 * 943, 1682, 400_000),
    "16x-shape": lambda: synthetic(16 * 943, 1682, 1_600_000),
    "square-20k": lambda: synthetic(20_000, 20_000, 600_000),
    "shop-200k": lambda: synthetic(200_000, 20_000, 6_000_000),
    "split-10m": lambda: synthetic(200_000, 30_000, 10_000_000),
    "million": lambda: synthetic(1_000_000, 50_000, 20_000_000),
}
WRITTEN = ("shop-200k",)
"""Shapes that are also written as a CSV, which ``fedrec data stats`` then reads."""
REAL = ("ml-100k",)
"""Shapes that are data sets, and so may not be here."""
DEFAULT_SHAPES = ("ml-100k", "ml-100k-shape", "ml-1m-shape")


LONG = 15.0
"""A round of more seconds is timed once: noise no longer matters, and patience does."""


JUDGED = 250_000
"""Clients that are evaluated at most."""


Tell = Callable[[str], None]
"""Told what begins."""


class _Watch:
    """Times what happens once, and says when it begins."""

    def __init__(self, tell: Tell) -> None:
        self.seconds: dict[str, float] = {}
        self.cpu_seconds: dict[str, float] = {}
        self.tell = tell

    def took(self, name: str, work: Callable[[], Result]) -> Result:
        self.tell(name)
        start, spent = time.perf_counter(), time.process_time()
        found = work()
        self.seconds[name] = round(time.perf_counter() - start, 3)
        self.cpu_seconds[name] = round(time.process_time() - spent, 3)
        return found


def measure(
    case: str, shape: str, *, rounds: int = 3, device: str = "auto", tell: Tell = lambda stage: None
) -> dict[str, Any]:
    """Time some rounds of one case after two that compile and warm up; ``tell`` hears which stage begins."""
    check_known([case], [shape])
    chosen_device = resolve_device(device)
    chosen, watch = EVERY_CASE[case], _Watch(tell)
    data = watch.took("data", SHAPES[shape])
    reading = _read_as_csv(data, watch) if shape in WRITTEN else {}
    split = watch.took("split", lambda: preset(chosen.protocol).split(data, seed=0))
    about = {
        "case": case,
        "shape": shape,
        "clients": split.data.n_users,
        "items": split.data.n_items,
        "rows": len(split.data),
        "threads": torch.get_num_threads(),
        "device": str(chosen_device),
        **reading,
    }
    if chosen.method is None:
        return about | {"once": watch.seconds, "once_cpu": watch.cpu_seconds, "peak_memory_mb": peak_mb(chosen_device)}
    method = create(chosen.method, **chosen.settings)
    trainer = watch.took("trainer", lambda: method.trainer(split.training, Setup(device=chosen_device)))
    evaluator = Evaluator(split, chosen_device, logits=trainer.logits)
    judged_clients = trainer.client_order
    if split.data.n_users > JUDGED:
        drawn = np.random.default_rng(0).choice(split.data.n_users, JUDGED, replace=False)
        judged_clients = torch.from_numpy(np.sort(drawn))
    warm = 2  # some methods do more from the second round on, when there is something to merge
    for number in range(warm):
        tell(f"round {number + 1} of {warm + rounds}")
        start = time.perf_counter()
        trainer.round(number)
    if time.perf_counter() - start > LONG:
        rounds = 1
    reports, seconds, judged = list[RoundReport](), list[float](), list[float]()
    for number in range(warm, warm + rounds):
        tell(f"round {number + 1} of {warm + rounds}")
        start = time.perf_counter()
        reports.append(trainer.round(number))
        seconds.append(time.perf_counter() - start)
        if judged and judged[0] > LONG:
            continue
        tell("evaluation")
        start = time.perf_counter()
        evaluator.evaluate(trainer.scores, "validation", "test", order=judged_clients)
        judged.append(time.perf_counter() - start)
    watch.took("lists", lambda: evaluator.top(trainer.scores, 10, order=judged_clients))
    per_round = float(np.median(seconds))
    phases = {name: float(np.median([r.seconds.get(name, 0.0) for r in reports])) for name in reports[0].seconds}
    counts, schedule = split.training.positives.counts * (1 + method.negatives), method.schedule or Schedule(1, 1 << 30)
    steps = int(np.ceil(counts / schedule.batch_size).sum()) * schedule.epochs
    share = reports[-1].clients / max(1, len(counts))
    return about | {
        "seconds_per_round": per_round,
        "phases": phases | {"evaluation": float(np.median(judged))},
        "evaluated_clients": split.data.n_users if judged_clients is None else len(judged_clients),
        "once": watch.seconds,
        "once_cpu": watch.cpu_seconds,
        "clients_per_second": reports[-1].clients / per_round,
        "local_steps_per_second": steps * share / per_round,
        "peak_memory_mb": peak_mb(chosen_device),
    }


def _read_as_csv(data: Interactions, watch: _Watch) -> dict[str, Any]:
    """``fedrec data stats`` on the same rows as a file, in a process of its own; its seconds go to ``watch``."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        watch.tell("writing a CSV")
        _write(data, path)

        def stats() -> dict[str, Any]:
            command = [sys.executable, "-m", "fedrec", "data", "stats", str(path), "--json"]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode != 0:
                raise FedrecError(f"fedrec data stats ended with exit code {process.returncode} on {path}.")
            return {"csv_mb": path.stat().st_size / 1e6, "stats_peak_memory_mb": usage.ru_maxrss / 1024}

        return watch.took("data stats", stats)


def _write(data: Interactions, path: Path) -> None:
    """User, item, rating and time, with a header."""
    table = pyarrow.table(
        {
            "user_id": data.users,
            "item_id": data.items,
            "rating": np.ones(len(data), np.int32),
            "timestamp": 1_000_000_000 + np.asarray(data.timestamps),
        }
    )
    pyarrow.csv.write_csv(table, path)


def growth(*, rounds: int = 3) -> list[dict[str, Any]]:
    """How the CPU seconds of a FedMF round grow when one size of the data, or the dimension, is four times as large.

    Each factor comes with the exponent e of size ** e. Rows are spread over clients, so that with more clients and the same rows
    each has fewer.
    """
    base = {"clients": 1500, "items": 1500, "rows": 90_000, "dim": 16}

    def cost(sizes: dict[str, int]) -> float:
        data = synthetic(sizes["clients"], sizes["items"], sizes["rows"])
        choices = {"min_interactions": 3, "candidates": 0, "select_ranking": "full"}
        split = preset("honest").with_options(**choices).split(data, seed=0)
        method = create("fedmf", _LOCAL | {"dim": sizes["dim"], "epochs": 2})
        trainer = method.trainer(split.training, Setup())
        trainer.round(0)
        seconds = []
        for number in range(1, 1 + rounds):
            start = time.process_time()
            trainer.round(number)
            seconds.append(time.process_time() - start)
        return min(seconds)

    first, found = cost(base), []
    for name in base:
        seconds = cost(base | {name: 4 * base[name]})
        exponent = float(np.log(seconds / first) / np.log(4))
        found.append(
            {"size": name, "from": base[name], "cpu_seconds": [first, seconds], "exponent": round(exponent, 2)}
        )
    return found


def check_known(cases: Iterable[str], shapes: Iterable[str]) -> None:
    """Refuse names of cases and shapes that do not exist."""
    for kind, names, known in (("case", cases, EVERY_CASE), ("shape", shapes, SHAPES)):
        for name in names:
            if name not in known:
                raise ConfigError(unknown(f"benchmark {kind}", name, known))


def run_all(
    cases: list[str],
    shapes: list[str],
    *,
    rounds: int,
    device: str,
    threads: int | None,
    tell: Tell = lambda stage: None,
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
                yield _measure_apart(case, shape, rounds, device, threads, tell)


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


def _measure_apart(case: str, shape: str, rounds: int, device: str, threads: int | None, tell: Tell) -> dict[str, Any]:
    command = [sys.executable, "-m", "fedrec", "bench", "--case", case, "--shape", shape, "--json", "--here"]
    command += ["--rounds", str(rounds), "--device", device]
    command += ["--threads", str(threads)] if threads else []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        said = list(_heard(process.stderr, tell))
        out = process.stdout.read()  # one line, written at the end
    if process.returncode == 0:
        found: dict[str, Any] = json.loads(out)["results"][0]
        return found
    return {
        "case": case,
        "shape": shape,
        "failed": said[-1].removeprefix("error: ") if said else f"exit code {process.returncode}",
    }


def _heard(stream: IO[str], tell: Tell) -> Iterator[str]:
    """What a process says, line by line, and its stages passed on."""
    for line in stream:
        if words := line.strip():
            tell(words)
            yield words
