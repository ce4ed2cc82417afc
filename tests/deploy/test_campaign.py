"""A long campaign of faults on real processes: sites, the run and the server are killed at moments nobody chose."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from safetensors.torch import load_file
from sites_at_hand import NAMES, thirds
from test_processes import READY, federation, lines_of, start_site, train

from fedrec.deploy.recommending import recommend
from fedrec.deploy.service import connected_sites
from fedrec.errors import FedrecError

pytest.importorskip("flwr")
pytestmark = pytest.mark.slow
__all__ = ["federation"]
KNOWN = (
    r"site \w+ joined with \d+ users",
    r"waiting for ",
    r"not connected after ",
    r"site \w+ (does not take part|could not start): ",
    r"round \d+: going on without site \w+: ",
    r"round \d+: \d of \d sites answered, and \d are needed",
    r"round \d+: .* is given up",
    r"secure sum, [\w ]+: going on without site \w+: ",
    r"evaluation after round \d+: ",
    r"site \w+ did not get the finished model: ",
)
"""All that may be said of a run whose sites come and go."""


def back(folder, running, counts):
    """Wait until everybody is connected again."""
    for name in NAMES:
        running.wait_for(name, "connected to", READY, times=counts[name])
    end = time.monotonic() + READY
    while any(state != "online" for _, state in connected_sites(folder / "server")):
        assert time.monotonic() < end, "a site did not come back"
        time.sleep(1)


def until_it_ends(folder, name, rounds, told, secure):
    """Resume the run whenever too few sites were left for it to go on."""
    for _ in range(20):
        begun = (folder / "server" / "runs" / name / "run.json").exists()
        try:
            fewest = 2 if secure else 1
            return train(
                folder, name, rounds, tell=told.append, deadline=15.0, min_sites=fewest, secure=secure, resume=begun
            )
        except FedrecError as error:
            if not re.search("too few sites answered|no site could be evaluated|sites joined|no site told", str(error)):
                raise
            time.sleep(5)
    raise AssertionError("the run did not end")


@pytest.fixture(scope="module")
def counts():
    """How often each site has been started."""
    return dict.fromkeys(NAMES, 1)


@pytest.mark.parametrize("secure", [False, True])
def test_sites_are_killed_and_come_back_all_the_time(federation, counts, secure):
    folder, running = federation
    over, random_ = threading.Event(), random.Random(int(secure))
    told: list[str] = []
    # A secure sum needs two sites from its first step to its last, and who was killed is let in again after 20 s.
    rounds, pause = (8, (15, 30)) if secure else (25, (2, 8))

    def chaos():
        while not over.wait(random_.uniform(*pause)):
            name = random_.choice(NAMES)
            running.kill(name, signal.SIGKILL)
            time.sleep(random_.uniform(0, 2))
            start_site(running, folder, name)
            counts[name] += 1
            running.wait_for(name, "connected to", READY, times=counts[name])

    thread = threading.Thread(target=chaos)
    thread.start()
    name = f"chaos-{secure}"
    try:
        result = until_it_ends(folder, name, rounds, told, secure)
    finally:
        over.set()
        thread.join()
    assert sum(counts.values()) > 3
    assert result.rounds == rounds == len(lines_of(folder, name))
    assert [line for line in told if not any(re.match(known, line) for known in KNOWN)] == []
    table = load_file(folder / "server" / "runs" / name / "model" / "server.safetensors")["server.items"]
    assert bool(table.isfinite().all())
    back(folder, running, counts)
    told.clear()
    again = train(folder, f"{name}-after", 2, tell=told.append)
    assert again.users == 500
    assert [line for line in told if "without" in line] == []


def test_a_site_that_never_comes_back_is_done_without(federation, counts):
    folder, running = federation
    told: list[str] = []
    timer = threading.Timer(3.0, running.kill, ("west", signal.SIGKILL))
    timer.start()
    result = train(folder, "gone", 8, tell=told.append, deadline=10.0)
    timer.join()
    assert result.rounds == 8
    without = [line for line in told if re.match(r"round \d+: going on without site west: ", line)]
    assert without
    start_site(running, folder, "west")
    counts["west"] += 1
    back(folder, running, counts)


def test_a_run_that_is_killed_at_any_moment_goes_on_to_the_same_numbers(federation, counts):
    folder, _ = federation
    words = ["federation", "run", "fedmf", "--server", str(folder / "server"), "--rounds", "6", "--quiet"]
    words += [x for key, value in {"dim": 4, "lr": 0.05, "epochs": 2}.items() for x in ("--set", f"{key}={value}")]

    def run(name, *more):
        out = str(folder / "server" / "runs" / name)
        return subprocess.Popen([sys.executable, "-m", "fedrec", *words, "--out", out, "--min-sites", "3", *more])

    assert run("uncut").wait(300) == 0
    random_, kills = np.random.default_rng(0), 0
    path = folder / "server" / "runs" / "cut"
    for attempt in range(12):
        process = run("cut", *(["--resume"] if (path / "run.json").exists() else []))
        try:
            code = process.wait(random_.uniform(8, 20) if attempt < 8 else 300)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(30)
            kills += 1
            continue
        assert code == 0
        break
    assert kills
    assert (path / "manifest.json").exists()
    assert [line["round"] for line in lines_of(folder, "cut")] == [1, 2, 3, 4, 5, 6]
    one, two = (json.loads((folder / "server" / "runs" / n / "result.json").read_text()) for n in ("uncut", "cut"))
    assert two["selected_round"] == one["selected_round"]
    assert two["test"]["full"]["ndcg@10"] == pytest.approx(one["test"]["full"]["ndcg@10"], abs=4e-3)
    tables = [
        load_file(folder / "server" / "runs" / name / "model" / "server.safetensors")["server.items"]
        for name in ("uncut", "cut")
    ]
    assert (tables[0] - tables[1]).abs().max() < 1e-4 * tables[0].abs().max()


def test_users_are_still_recommended_to(federation, demo):
    folder, _ = federation
    for name, part in zip(NAMES, thirds(demo), strict=True):
        assert len(recommend(folder / "sites" / name, str(part.user_ids[0]), 5)) == 5
