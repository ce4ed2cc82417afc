"""Fifty runs are killed at random moments and resumed, ten find their disk full: each ends as if nothing had happened.

Runs are processes of their own, forked from one that has imported everything and computed nothing. A limit on the size of
files (``RLIMIT_FSIZE``), set at a random moment, stands for the full disk.
"""

import json
import multiprocessing
import random
import resource
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

import fedrec
from fedrec.errors import FedrecError
from fedrec.running.files import checksum

pytestmark = pytest.mark.slow

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["fedrec.api", "fedrec.methods", "fedrec.local.cpu.adapter", __name__])

CASES = {
    "federated": ("fedmf", {"epochs": 3}, {}),
    "state on disk": ("fedem", {"variant": "code", "epochs": 2}, {"store": "disk"}),
    "with noise": (
        "fedmf",
        {"epochs": 3, "participation": 0.5},
        # Secret noise differs between runs: only what follows from the seed can be compared with an uninterrupted run.
        {"privacy": fedrec.Privacy(clip=0.1, scale=0.01, reproducible=True)},
    ),
    "centralised": ("mf", {}, {}),
    "merged, every upload": ("gpfedrec", {}, {"evaluate_every": 2}),
}
KILLS, FULL = 50, 10
LIMIT = 120.0
"""Seconds after which a run hangs."""


def train(case, folder, after=None, size=0):
    """What a process does; after some seconds its disk is full beyond files of some size."""
    name, settings, options = CASES[case]
    resume = any((folder / mark).exists() for mark in ("run.json", "checkpoints", "manifest.json"))
    split = fedrec.HONEST.split(fedrec.load("demo"), seed=0)
    if after is not None:
        fill = (resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        threading.Timer(after, resource.setrlimit, fill).start()
    usual = {"rounds": 8, "checkpoint_every": 1, "threads": 1, "device": "cpu", "progress": False}
    try:
        fedrec.train(fedrec.create(name, settings), split, out=folder, resume=resume, **usual, **options)
    except FedrecError as error:
        if after is not None:  # there is room again for the sentence, which lies on the same disk
            most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        (folder.parent / "sentence").write_text(str(error))
        raise SystemExit(2) from None


def start(*arguments):
    process = PROCESSES.Process(target=train, args=arguments)
    process.start()
    return process


def finish(process):
    process.join(LIMIT)
    if process.is_alive():
        process.kill()
        raise AssertionError("the run hangs")
    return process.exitcode


def outcome(folder):
    """All of a result but times and machine, and the saved model bit by bit."""
    result = json.loads((folder / "result.json").read_text())
    for key in ("seconds", "clients_per_second", "peak_memory_mb"):
        del result[key]
    names = ("model/server.safetensors", "private/clients.safetensors", "per_client.safetensors")
    return result, [checksum(folder / name) for name in names]


@pytest.fixture(scope="module")
def wholes(tmp_path_factory):
    """Every case uninterrupted, and the seconds its process took."""
    found = {}
    for case in CASES:
        folder = tmp_path_factory.mktemp("whole") / "run"
        assert finish(start(case, folder)) == 0  # once to warm up
        begin = time.perf_counter()
        assert finish(start(case, folder.with_name("again"))) == 0
        found[case] = (*outcome(folder), time.perf_counter() - begin)
        assert outcome(folder.with_name("again")) == found[case][:2]
    return found


def moment(folder):
    """What a killed run was about, by what it left behind."""
    notes = list(folder.glob("checkpoints/*/checkpoint.json"))
    if not (folder / "run.json").exists():
        return "before the first file"
    if (folder / "model").exists():
        return "while the model was saved"
    if len(list(folder.glob("checkpoints/*"))) > len(notes) or list(folder.rglob("*.part")):
        return "while a checkpoint was written"
    return "between checkpoints" if notes else "before the first checkpoint"


def test_killed_runs_resume_to_the_same_result(wholes, tmp_path, capsys):
    rng, seen, kills = random.Random(11), Counter(), 0
    for number in range(KILLS):
        case = list(CASES)[number % len(CASES)]
        result, files, seconds = wholes[case]
        folder = tmp_path / str(number) / "run"
        folder.parent.mkdir()
        killed = 0
        for _ in range(4):  # some are killed again when they go on
            process = start(case, folder)
            process.join(rng.uniform(0, seconds))
            if process.exitcode is None:
                process.kill()
                killed += 1
                process.join()
                seen[moment(folder)] += 1
                if rng.random() < 0.6:
                    break
            elif killed:
                break
            else:  # it was faster than it was known to be: another try
                folder = folder.with_name(f"{folder.name}+")
        assert killed, f"run {number} ({case}) always ended before it could be killed"
        kills += killed
        assert finish(start(case, folder)) == 0, (number, case, sentence(folder))
        assert outcome(folder) == (result, files), (number, case)
    with capsys.disabled():
        print(f"\n{KILLS} of {KILLS} runs killed ({kills} kills: {dict(seen)}) resumed to the same result")


def sentence(folder):
    path = Path(folder).parent / "sentence"
    return path.read_text() if path.exists() else "no sentence"


def test_a_disk_full_at_any_moment_is_a_sentence_and_the_run_goes_on(wholes, tmp_path, capsys):
    rng, full = random.Random(12), 0
    for number in range(FULL):
        case = list(CASES)[number % len(CASES)]
        result, files, seconds = wholes[case]
        folder = tmp_path / str(number) / "run"
        folder.parent.mkdir()
        code = finish(start(case, folder, rng.uniform(0, 0.8 * seconds), rng.choice([0, 100, 5_000, 100_000])))
        assert code in (0, 2), (number, case, code)
        if code == 2:
            full += 1
            assert "\n" not in sentence(folder)
            assert any(words in sentence(folder) for words in ("once there is room", "make room")), sentence(folder)
            assert not list(folder.rglob("*.part"))
            assert finish(start(case, folder)) == 0, (number, case, sentence(folder))
        assert outcome(folder) == (result, files), (number, case)
    assert full >= FULL // 2
    with capsys.disabled():
        print(f"\n{full} of {FULL} runs found their disk full, said so and resumed to the same result")
