"""A thread that waits must not keep a core busy."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, time
import fedrec
import torch

def work(threads):
    torch.set_num_threads(threads)
    torch.add(values, 1.0)
    start = time.process_time()
    for _ in range(100):
        torch.add(values, 1.0)
    return time.process_time() - start

values = torch.randn(400_000)
work(2)
for thread in os.listdir("/proc/self/task"):  # both threads on one core, as if somebody else had the other one
    os.sched_setaffinity(int(thread), {min(os.sched_getaffinity(0))})
print(work(2) / work(1))
"""


def processor_time(**environment: str) -> float:
    """How many times the processor time two threads on one core need, compared to one thread."""
    known = {key: value for key, value in os.environ.items() if key not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=known | {"OMP_NUM_THREADS": "2"} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or (os.cpu_count() or 1) < 2,
    reason="threads cannot be held on one of two cores",
)
def test_threads_sleep_while_they_wait() -> None:
    assert processor_time() < 8, "spinning takes some hundred times the processor time, sleeping about 1.2 times"


def test_what_the_user_chose_stays() -> None:
    program = "import os, fedrec; print(os.environ.get('OMP_WAIT_POLICY'), os.environ.get('GOMP_SPINCOUNT'))"
    for chosen, seen in (
        ({}, "PASSIVE None"),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE None"),
        ({"GOMP_SPINCOUNT": "5"}, "None 5"),
    ):
        known = {key: value for key, value in os.environ.items() if key not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
        done = subprocess.run(
            [sys.executable, "-c", program], env=known | chosen, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == seen
