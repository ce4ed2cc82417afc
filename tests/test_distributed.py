"""``torchrun -m fedrec train``: two processes that talk by gloo, and what is said when one of them ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

import fedrec
from command_line import refused, run
from fedrec import distributed

TRAIN = ("train", "fedmf", "--data", "demo", "--set", "epochs=1", "--set", "dim=4", "--device", "cpu")
LONGEST = 120


@contextmanager
def launched(*words):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "fedrec"]
    place = {"PYTHONPATH": str(Path(fedrec.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": os.environ | place}
    with subprocess.Popen([*command, *map(str, words)], **options) as process:
        try:
            yield process
        finally:
            for number in children(process) if process.poll() is None else []:
                os.kill(number, signal.SIGKILL)
            process.kill()


def children(process):
    """Process ids that the launcher started."""
    found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(number) for number in found]


def test_two_processes_print_one_result_with_the_numbers_of_one_process(capsys):
    with launched(*TRAIN, "--rounds", "2", "--json", "--quiet") as process:
        out, err = process.communicate(timeout=LONGEST)
    assert process.returncode == 0, err
    code, alone, _ = run(capsys, *TRAIN, "--rounds", "2", "--json", "--quiet")
    assert code == 0
    found, wanted = json.loads(out), json.loads(alone)  # one object, and not two
    assert (found["processes"], wanted["processes"]) == (2, 1)
    for part in ("validation", "test", "catalogue", "bytes"):
        assert str(found[part]) == str(wanted[part]) or found[part] == pytest.approx(wanted[part], abs=1e-6), part


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="process ids of children are read from /proc")
def test_a_killed_process_ends_the_other_with_a_sentence_and_the_run_can_be_resumed(tmp_path, capsys):
    folder = tmp_path / "run"
    options = ("--out", folder, "--checkpoint-every", 1, "--rounds", 100000, "--evaluate-every", 100000)
    with launched(*TRAIN, *options) as process:
        end = time.monotonic() + LONGEST
        while len(list(folder.glob("checkpoints/*/checkpoint.json"))) < 2:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < end
            time.sleep(0.05)
        os.kill(children(process)[1], signal.SIGKILL)
        _, err = process.communicate(timeout=LONGEST)
    assert process.returncode != 0
    said = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(said) == 1, err
    assert f"resume the run in {folder}" in said[0]
    done = json.loads(max(folder.glob("checkpoints/*/checkpoint.json")).read_text())["record"]["history"]["rounds"]
    assert done >= 1
    words = (*TRAIN, "--out", folder, "--rounds", done + 1, "--evaluate-every", 100000, "--resume", "--json", "--quiet")
    code, out, err = run(capsys, *words)
    assert code == 0, err
    assert json.loads(out)["rounds"] == done + 1


def test_other_commands_run_in_one_process(capsys, monkeypatch):
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(distributed, "says_it", lambda: True)
    assert "'compare' runs in one process, and 2 were started" in refused(capsys, "compare", "fedmf", "--data", "demo")


def test_without_a_launcher_there_is_one_process(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")  # some schedulers set it for everybody
    assert distributed.processes() == 1
    assert distributed.is_first()
    assert distributed.joined("cpu") is None
    assert distributed.says_it()
