"""``fedrec federation demo``: a server and three sites on this machine, beside the simulation of the same users."""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from fedrec.api import train
from fedrec.cli.common import err, out, read_data
from fedrec.data import Interactions
from fedrec.data.filters import take
from fedrec.deploy.folders import catalogue
from fedrec.deploy.items import write_interactions
from fedrec.deploy.pooled import pooled
from fedrec.deploy.processes import Processes, processes
from fedrec.deploy.provision import provision
from fedrec.deploy.recommending import recommend
from fedrec.deploy.service import interactions_of, run_at
from fedrec.deploy.site_data import site_data
from fedrec.errors import DataError
from fedrec.federation.result import Result
from fedrec.methods import create
from fedrec.protocol import HONEST
from fedrec.running.options import RunOptions
from fedrec.running.progress import ProgressDisplay

SITES = ("east", "north", "west")
RUNS: dict[str, tuple[str, dict[str, Any], bool]] = {
    "fedmf": ("fedmf", {}, False),
    "fedmf secure": ("fedmf", {}, True),
    "fedem": ("fedem", {"agg": "both"}, False),
}
"""A method whose server needs sums only, the same behind secure aggregation, and FedEM with similarities, whose server sees
every upload."""
READY = 90.0
"""Seconds for a process to get ready."""


def demo(rounds: int, data: str, keep: Path | None, data_dir: str | None) -> None:
    """Start a server and three sites on this machine, train with them, and compare with the simulation."""
    try:
        interactions, _ = read_data(data, data_dir)
    except DataError as error:
        err.print(f"{error} Using the embedded demonstration data instead.", soft_wrap=True)
        interactions, _ = read_data("demo", None)
    folder = keep or Path(tempfile.mkdtemp(prefix="fedrec-federation-"))
    try:
        _demo(folder, interactions, rounds)
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def _demo(folder: Path, data: Interactions, rounds: int) -> None:
    port = _free_port()
    provision(folder, list(SITES), items=data.item_ids, name=data.name, port=port)
    files = {}
    for k, site in enumerate(SITES):
        files[site] = folder / f"{site}.csv"
        write_interactions(files[site], take(data, np.flatnonzero(data.users % len(SITES) == k)))
    _say(f"provisioned a server and {len(SITES)} sites in {folder}: TLS, a key per site, a third of the users each")
    with processes(folder / "logs") as running:
        start = time.perf_counter()
        running.start("server", "federation", "server", str(folder / "server"))
        running.wait_for("server", "serving", READY)
        for site in SITES:
            running.start(site, "federation", "site", str(folder / "sites" / site), "--data", str(files[site]))
        for site in SITES:
            running.wait_for(site, "connected to", READY)
        _say(f"server and sites run as {1 + len(SITES)} processes after {time.perf_counter() - start:.0f} s")
        found = {name: _train(folder, name, rounds) for name in RUNS}
        _compare(folder, found, rounds)
        user = str(interactions_of(folder / "sites" / SITES[0]).user_ids[0])
        _show(user, recommend(folder / "sites" / SITES[0], user, 10))
        _stop(running)


def _train(folder: Path, name: str, rounds: int) -> tuple[Result, dict[str, int], float]:
    server, start, before = folder / "server", time.perf_counter(), _traffic(folder)
    kind, settings, secure = RUNS[name]
    method = create(kind, settings, data=_name(folder))
    options = RunOptions(rounds=rounds, out=server / "runs" / name.replace(" ", "-"), progress=True, checkpoint_every=1)
    result = run_at(
        server, method, HONEST, options, deadline=120, min_sites=len(SITES), wait=READY,
        secure=secure, listeners=[ProgressDisplay(HONEST)], tell=_say,
    )  # fmt: skip
    after = _traffic(folder)
    return result, {site: after[site] - before[site] for site in SITES}, time.perf_counter() - start


def _name(folder: Path) -> str:
    return str(json.loads((folder / "server" / "federation.json").read_text())["name"])


def _traffic(folder: Path) -> dict[str, int]:
    found = {}
    for site in SITES:
        path = folder / "sites" / site / "traffic.json"
        found[site] = json.loads(path.read_text())["sent"] if path.exists() else 0
    return found


def _compare(folder: Path, found: dict[str, tuple[Result, dict[str, int], float]], rounds: int) -> None:
    """The federation beside the simulation of all its users in one process."""
    items = catalogue(folder / "server")
    splits = [site_data(interactions_of(folder / "sites" / site), items, HONEST, 0).split for site in SITES]
    pool = pooled(splits, _name(folder))
    table = Table("method", "where", "HR@10", "NDCG@10", "NDCG@10, all items", "s", title="the same users")
    wire = Table(
        "method", "the server sees", "site", "users", "its clients' uploads", "sent, as messages", "sent, in all"
    )
    for name, (result, sent, seconds) in found.items():
        start = time.perf_counter()
        kind, settings, secure = RUNS[name]
        alone = train(create(kind, settings, data=_name(folder)), pool, rounds=rounds, progress=False).result
        taken = time.perf_counter() - start
        table.add_row(name, "three sites", *_numbers(result), f"{seconds:.0f}")
        table.add_row("", "one process", *_numbers(alone), f"{taken:.0f}")
        for site, about in result.diagnostics["federation"].items():
            share = result.bytes.up_total * about["users"] / result.users
            words = [f"{about['users']}", f"{share / 1e6:.2f} MB", f"{about['message_bytes_sent'] / 1e6:.2f} MB"]
            wire.add_row(
                name, "sums over all sites" if secure else result.sees, site, *words, f"{sent[site] / 1e6:.2f} MB"
            )
    out.print(table)
    out.print(wire)


def _numbers(result: Result) -> tuple[str, str, str]:
    sampled, full = result.test.sampled, result.test.full
    return f"{sampled['hr@10']:.4f}", f"{sampled['ndcg@10']:.4f}", f"{full['ndcg@10']:.4f}"


def _show(user: str, found: list[tuple[str | int, float]]) -> None:
    table = Table("rank", "item", "score", title=f"{SITES[0]} recommends to its user {user}, without asking anybody")
    for rank, (item, score) in enumerate(found, 1):
        table.add_row(str(rank), str(item), f"{score:.3f}")
    out.print(table)


def _stop(running: Processes) -> None:
    count = len(running.running)
    running.stop()
    _say(f"stopped {count} processes")


def _say(line: str) -> None:
    err.print(line, markup=False, highlight=False, soft_wrap=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
