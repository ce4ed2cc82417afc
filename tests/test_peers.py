"""The script that measures peers, as far as it needs none of them."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedrec.data.synthetic import synthetic
from fedrec.protocol import preset


@pytest.fixture(scope="module")
def peers():
    path = Path(__file__).parents[1] / "benchmarks" / "peers.py"
    spec = importlib.util.spec_from_file_location("peers", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def view():
    return preset("honest").with_options(candidates=20).split(synthetic(40, 200, 1500), seed=0).training


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_cpu_seconds_count_processes_that_still_run(peers):
    busy = "import time\nwhile time.process_time() < 1: pass\nprint('done', flush=True)\ntime.sleep(60)"
    before = peers.used()
    with subprocess.Popen([sys.executable, "-c", busy], stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        spent, held = peers.used() - before, peers.memory()
        child.kill()
    assert 0.95 < spent < 5  # the clock has ticks
    assert held > 20


def test_clients_of_a_sample_are_of_all_sizes(peers, view):
    sizes = [len(view.positives[client]) for client in peers.clients_of(view, 10)]
    everybody = np.sort(view.positives.counts)
    assert sizes == sorted(sizes)
    assert sizes == everybody[2::4].tolist()


def test_negatives_of_a_client_are_items_it_never_touched(peers, view):
    items, labels = peers.samples_of(view, 3, np.random.default_rng(0))
    own = set(view.positives[3].tolist())
    assert sorted(items[labels == 1].tolist()) == sorted(own)
    assert not set(items[labels == 0].tolist()) & set(view.excluded[3].tolist())
    assert len(items) == 5 * len(own)


def test_the_plain_loop_says_when_each_round_ends(peers, view):
    marks = []
    peers.loop(view, 3, lambda: marks.append(1))
    assert len(marks) == peers.ROUNDS


def test_rows_say_what_was_not_measured(peers):
    found = [
        {"peer": "loop", "clients": 3, "per_cpu_second": 12.34, "per_second": 5.0, "peak_mb": 400.4},
        {"peer": "pfl", "missing": "No module named 'pfl'"},
    ]
    assert list(peers.rows(found))[2:] == [
        "| loop | 3 | 12.3 | 5.0 | 400 |",
        "| pfl | not measured: No module named 'pfl' | | | |",
    ]
