"""A disk that is full: one sentence, the last checkpoint intact, and the run goes on once there is room.

A limit on the size of files (``RLIMIT_FSIZE``) stands for the full disk: both make a write fail in its middle.
"""

import json
import os
import subprocess
import sys

import pytest

import fedrec
from fedrec.cli import main
from fedrec.methods.fedmf import FedMF
from fedrec.running import checkpoint

TRAIN = """
import resource, sys, fedrec
from fedrec.cli import main
limit, after, words = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]

class Fill(fedrec.Listener):
    def round(self, line):
        if line["round"] == after:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

import fedrec.cli.train as command
train = command.train
command.train = lambda *args, **kinds: train(*args, **(kinds | {"listeners": [*kinds.get("listeners", ()), Fill()]}))
if after == 0:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
main(words)
"""
WORDS = (
    "train",
    "fedmf",
    "--data",
    "demo",
    "--rounds",
    "6",
    "--checkpoint-every",
    "2",
    "--threads",
    "1",
    "--quiet",
    "--json",
)


def command(folder, *more, limit=2**40, after=0):
    line = [sys.executable, "-c", TRAIN, str(limit), str(after), *WORDS, "--out", str(folder), *more]
    # Where coverage is measured, it could not write what it found either, and say so with a traceback.
    measured = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    done = subprocess.run(line, capture_output=True, text=True, timeout=240, check=False, env=measured)
    assert "Traceback" not in done.stderr
    return done


def in_this_process(capsys, folder, *more):
    with pytest.raises(SystemExit) as end:
        main([*WORDS, "--out", str(folder), *more])
    assert not end.value.code
    found = json.loads(capsys.readouterr().out)
    return {key: found[key] for key in ("test", "final", "bytes")}


@pytest.mark.parametrize(
    ("limit", "after", "left"),
    [
        pytest.param(0, 0, "train again once there is room", marks=pytest.mark.slow),
        pytest.param(1000, 1, "no checkpoint yet: resume the run once there is room", marks=pytest.mark.slow),
        (1000, 3, "the checkpoint after round 2 is whole: resume the run once there is room"),
        pytest.param(0, 3, "the checkpoint after round 2 is whole", marks=pytest.mark.slow),  # the log
        (20_000, 5, "the checkpoint after round 4 is whole"),  # the model
    ],
)
def test_a_full_disk_is_a_sentence_and_the_run_goes_on(tmp_path, capsys, limit, after, left):
    folder = tmp_path / "run"
    failed = command(folder, limit=limit, after=after)
    assert failed.returncode == 2
    assert "cannot be written (File too large)" in failed.stderr
    assert left in failed.stderr
    assert failed.stderr.count("\n") == 1
    assert not list(tmp_path.rglob("*.part"))
    assert not (folder / "manifest.json").exists()
    found = in_this_process(capsys, folder, *(["--resume"] if "resume" in failed.stderr else []))
    assert found == in_this_process(capsys, tmp_path / "whole")


def test_a_failed_checkpoint_leaves_the_ones_before(tmp_path, small, monkeypatch):
    from fedrec.running.files import NotWrittenError

    simulation = FedMF().trainer(small.training, fedrec.federation.trainer.Setup())
    kept = checkpoint.Checkpoint({"state": simulation.state()}, {"history": 1})
    for rounds in (2, 4):
        checkpoint.save(tmp_path, rounds, kept)

    def fail(tensors, path, about):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedrec.running.files.save_file", fail)
    with pytest.raises(NotWrittenError, match=r"state\.safetensors cannot be written \(No space left on device\)"):
        checkpoint.save(tmp_path, 6, kept)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000002", "000004"]
    assert checkpoint.newest(tmp_path).name == "000004"


def test_client_state_that_does_not_fit_the_disk_is_refused_before_training(tmp_path):
    done = command(tmp_path / "run", "--store", "disk", limit=10_000)
    assert done.returncode == 2
    assert "cannot take" in done.stderr
    assert "of client state (File too large); make room" in done.stderr
