"""Measures ``fedrec serve``: a service in a process of its own, asked by several connections at once.

    python tests/serving/load.py [--items 3700] [--seconds 10] [--connections 8] [--rate 500]

Without ``--rate`` connections ask again as soon as they are answered (the most the service can do); with it, requests
begin at that rate whatever comes back, so waiting counts. Histories have 20 items, lists 10; half of them with reasons.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import fedrec
from fedrec.serving.export import export


def made_model(folder: Path, n_items: int) -> Path:
    """A model of made-up rows over so many items."""
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(2000), 40)
    items = np.concatenate([np.arange(n_items), (rng.zipf(1.3, len(users)) - 1) % n_items])[: len(users)]
    rows = {"user": users, "item": rng.permutation(items), "timestamp": np.arange(len(users))}
    export(fedrec.Recommender("fedslist").fit(rows).run, folder)
    return folder


class Connection:
    """One connection that is kept open."""

    async def open(self, port: int) -> Connection:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)
        return self

    async def ask(self, body: bytes) -> int:
        head = f"POST /api/recommend HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self.writer.write(head.encode() + body)
        answer = await self.reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await self.reader.readexactly(length)
        return int(answer[9:12])


def bodies(ids: list[int | str]) -> list[bytes]:
    pick = random.Random(0)
    return [json.dumps({"history": pick.sample(ids, 20), "explain": k % 2 == 0}).encode() for k in range(500)]


async def closed(port: int, asked: list[bytes], seconds: float, connections: int) -> list[tuple[float, int]]:
    found, until = [], time.perf_counter() + seconds

    async def one(number: int) -> None:
        connection, k = await Connection().open(port), number
        while (begin := time.perf_counter()) < until:
            status = await connection.ask(asked[k % len(asked)])
            found.append((time.perf_counter() - begin, status))
            k += connections

    await asyncio.gather(*(one(number) for number in range(connections)))
    return found


async def at_rate(
    port: int, asked: list[bytes], seconds: float, connections: int, rate: float
) -> list[tuple[float, int]]:
    found: list[tuple[float, int]] = []
    free: asyncio.Queue[Connection] = asyncio.Queue()
    for _ in range(connections):
        free.put_nowait(await Connection().open(port))

    async def one(due: float, body: bytes) -> None:
        connection = await free.get()
        status = await connection.ask(body)
        free.put_nowait(connection)
        found.append((time.perf_counter() - due, status))

    start, jobs = time.perf_counter(), []
    for k in range(int(rate * seconds)):
        due = start + k / rate
        if (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        jobs.append(asyncio.create_task(one(due, asked[k % len(asked)])))
    await asyncio.gather(*jobs)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--items", type=int, default=3700)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--rate", type=float, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = made_model(Path(place) / "model", options.items)
        with socket.create_server(("127.0.0.1", 0)) as found:
            port = found.getsockname()[1]
        words = [sys.executable, "-m", "fedrec", "serve", str(folder), "--port", str(port), "--rate", "0"]
        with subprocess.Popen(words, stderr=subprocess.DEVNULL) as service:
            try:
                _wait(port, service)
                ids = json.loads((folder / "items.json").read_text())["ids"]
                asked = bodies(ids)
                asyncio.run(closed(port, asked, 1, options.connections))  # to warm up
                before, worked = time.perf_counter(), _cpu_seconds(service.pid)
                if options.rate:
                    run = at_rate(port, asked, options.seconds, options.connections, options.rate)
                else:
                    run = closed(port, asked, options.seconds, options.connections)
                answers = asyncio.run(run)
                took, worked = time.perf_counter() - before, _cpu_seconds(service.pid) - worked
            finally:
                service.terminate()
    times = np.array([seconds for seconds, _ in answers]) * 1000
    print(json.dumps({
        "items": len(ids), "connections": options.connections, "asked_per_s": options.rate or None,
        "answered": len(times), "failed": sum(status != 200 for _, status in answers),
        "requests_per_s": round(len(times) / took, 1),
        "service_cpu_ms": round(1000 * worked / len(times), 3), "p50_ms": round(float(np.percentile(times, 50)), 2),
        "p99_ms": round(float(np.percentile(times, 99)), 2), "max_ms": round(float(times.max()), 2),
    }))  # fmt: skip


def _cpu_seconds(process: int) -> float:
    """Time a process has had of all processors so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _wait(port: int, service: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until and service.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the service did not start")


if __name__ == "__main__":
    main()
