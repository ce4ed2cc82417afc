"""Listeners hear what happens, in order, to the end."""

import io
import json

import pytest
from rich.console import Console

import fedrec
from fedrec.federation.trainer import RoundReport
from fedrec.running.history import History
from fedrec.running.listeners import Listener, RunStart
from fedrec.running.progress import ProgressDisplay

QUIET = {"progress": False, "device": "cpu"}


class Ear(Listener):
    def __init__(self, fail_at=0):
        self.heard, self.fail_at = [], fail_at

    def start(self, run):
        self.heard.append(f"start {len(run.earlier)}/{run.rounds}")

    def round(self, line):
        self.heard.append(f"round {line['round']}" + (" evaluated" if "validation" in line else ""))
        if line["round"] == self.fail_at:
            raise RuntimeError("enough")

    def checkpoint(self, done):
        self.heard.append(f"checkpoint {done}")

    def end(self):
        self.heard.append("end")


def train(split, listener, **options):
    method = fedrec.create("fedmf", epochs=1)
    return fedrec.train(method, split, listeners=[listener], evaluate_every=2, **QUIET, **options)


def test_they_are_called_in_order(small, tmp_path):
    ear = Ear()
    train(small, ear, rounds=6, out=tmp_path / "run", checkpoint_every=2)
    assert ear.heard == [
        "start 0/6", "round 1", "round 2 evaluated", "checkpoint 2", "round 3", "round 4 evaluated", "checkpoint 4",
        "round 5", "round 6 evaluated", "end",
    ]  # fmt: skip
    ear = Ear(fail_at=5)
    with pytest.raises(RuntimeError, match="enough"):
        train(small, ear, rounds=6, out=tmp_path / "cut", checkpoint_every=2)
    ear = Ear()
    train(small, ear, rounds=6, out=tmp_path / "cut", resume=True)
    assert ear.heard == ["start 4/6", "round 5", "round 6 evaluated", "end"]


def test_no_checkpoint_is_due_without_a_folder(small):
    ear = Ear()
    train(small, ear, rounds=2, checkpoint_every=1)
    assert ear.heard == ["start 0/2", "round 1", "round 2 evaluated", "end"]


def test_an_error_in_one_ends_the_run_and_the_others_hear_of_it(small, tmp_path):
    first, second = Ear(), Ear(fail_at=3)
    method = fedrec.create("fedmf", epochs=1)
    options = {"rounds": 5, "out": tmp_path / "run", "checkpoint_every": 2, **QUIET}
    with pytest.raises(RuntimeError, match="enough"):
        fedrec.train(method, small, listeners=[first, second], **options)
    assert first.heard[-1] == second.heard[-1] == "end"
    assert fedrec.train(method, small, resume=True, **options).result.rounds == 5


def test_built_in_ones_are_told_first(small, tmp_path):
    class Look(Listener):
        def round(self, line):
            assert json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1]) == line

        def checkpoint(self, done):
            assert (tmp_path / "run" / "checkpoints" / f"{done:06d}" / "checkpoint.json").exists()

    train(small, Look(), rounds=3, out=tmp_path / "run", checkpoint_every=1)


def test_a_round_without_a_loss_is_null_in_the_log():
    assert '"loss": null' in json.dumps(History().add(RoundReport(), {}))


def test_the_display_says_what_happens():
    text = io.StringIO()
    display = ProgressDisplay(fedrec.HONEST, lambda: "epsilon 3", Console(file=text, width=200))
    display.start(RunStart("fedmf on demo", 2, keeps_best=False))
    means = {"sampled": {}, "full": {"ndcg@10": 0.25}}
    line = {"round": 1, "loss": 0.5, "clients_per_second": 100.0, "bytes_up": 0, "bytes_down": 0, "seconds": {}}
    display.round(line | {"validation": means})
    display.round(line | {"round": 2, "loss": None, "clients_per_second": None})
    display.end()
    shown = text.getvalue().splitlines()
    assert "the model of the last round will be saved" in shown[0]
    assert "fedmf on demo: round 1/2, loss 0.5000, validation ndcg@10 0.2500, 100 clients/s, epsilon 3, " in shown[1]
    assert "round 2/2, epsilon 3, 0 s left" in shown[2]
