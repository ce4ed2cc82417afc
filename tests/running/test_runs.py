"""Runs as a user makes them: interrupted, killed, resumed, damaged, saved and loaded."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import load_file

import fedrec
from fedrec.errors import ConfigError, FedrecError
from fedrec.running import checkpoint
from fedrec.running.selection import Selection

COMMAND = [
    sys.executable,
    "-m",
    "fedrec",
    "train",
    "fedem",
    "--data",
    "demo",
    "--set",
    "epochs=2",
    "--set",
    "variant=code",
]
COMMAND += ["--rounds", "12", "--checkpoint-every", "2", "--threads", "1", "--json"]


def start(folder, *words):
    return subprocess.Popen(
        [*COMMAND, "--out", str(folder), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for(path, process, seconds=120):
    end = time.monotonic() + seconds
    while not path.exists():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < end, "no checkpoint in time"
        time.sleep(0.005)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    out, err = start(tmp_path_factory.mktemp("whole") / "run").communicate(timeout=240)
    return json.loads(out), err


def same(left, right):
    return all(
        left[key] == right[key]
        for key in ("final", "test", "validation", "selected_round", "config_hash", "split_hash")
    )


def test_a_killed_run_resumes_to_the_same_numbers(tmp_path, uninterrupted):
    folder = tmp_path / "run"
    process = start(folder)
    wait_for(folder / "checkpoints" / "000004" / "checkpoint.json", process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (folder / "result.json").exists()
    out, err = start(folder, "--resume").communicate(timeout=240)
    assert same(json.loads(out), uninterrupted[0]), err
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == list(range(1, 13))


def test_ctrl_c_writes_a_checkpoint_and_says_how_to_resume(tmp_path, uninterrupted):
    folder = tmp_path / "run"
    process = start(folder)
    wait_for(folder / "checkpoints" / "000002" / "checkpoint.json", process)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=240)
    assert process.returncode == 2
    assert f"resume it in {folder}" in err
    assert "Traceback" not in err
    out, err = start(folder, "--resume").communicate(timeout=240)
    assert same(json.loads(out), uninterrupted[0]), err


def run_some(folder, rounds, split, method=None, **options):
    usual = {"checkpoint_every": 2, "progress": False, "device": "cpu"}
    return fedrec.train(
        method or fedrec.create("fedmf", epochs=1), split, rounds=rounds, out=folder, **(usual | options)
    )


class Kill(fedrec.Listener):
    """Ends a run after some rounds, as a kill would: nobody gets to say anything more."""

    def __init__(self, after):
        self.after = after

    def round(self, line):
        if line["round"] == self.after:
            raise KeyboardInterrupt


def interrupted_after(folder, rounds, split, method=None, **options):
    """A run folder as a kill after some rounds leaves it."""
    with pytest.raises(KeyboardInterrupt):
        run_some(folder, 9, split, method, listeners=[Kill(rounds + 1)], **options)


class Slow(fedrec.Listener):
    """Makes every round take a while."""

    def round(self, line):
        time.sleep(0.2)


def test_the_seconds_of_a_resumed_run_are_those_of_all_its_processes(tmp_path, small):
    """The time between them does not count."""
    begun = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        run_some(tmp_path / "run", 6, small, listeners=[Kill(5), Slow()])
    between = time.perf_counter()
    time.sleep(0.6)
    again = time.perf_counter()
    total = run_some(tmp_path / "run", 6, small, resume=True).result.seconds.total
    assert 4 * 0.2 <= total <= between - begun + time.perf_counter() - again


def test_a_checkpoint_that_notes_no_total_counts_its_phases(tmp_path, small):
    interrupted_after(tmp_path / "run", 4, small)
    saved = checkpoint.load(checkpoint.newest(tmp_path / "run" / "checkpoints"))
    saved.record["history"]["seconds"] = {"training": 1000.0}
    checkpoint.save(tmp_path / "run" / "checkpoints", 4, saved)
    found = run_some(tmp_path / "run", 6, small, resume=True).result.seconds
    assert 1000 < found.training < found.total < 1100


def test_a_damaged_checkpoint_is_passed_over(tmp_path, small):
    whole = run_some(tmp_path / "whole", 9, small)
    for number, damage in enumerate(["cut", "flip", "no-json"]):
        folder = tmp_path / str(number)
        interrupted_after(folder, 6, small)
        newest = folder / "checkpoints" / "000006"
        state = newest / "state.safetensors"
        content = bytearray(state.read_bytes())
        if damage == "cut":
            state.write_bytes(content[: len(content) // 2])
        elif damage == "flip":
            content[-3] ^= 1
            state.write_bytes(content)
        else:
            (newest / "checkpoint.json").unlink()
        found = checkpoint.newest(folder / "checkpoints")
        assert found.name == "000004"
        assert checkpoint.load(found).record["history"]["rounds"] == 4
        assert run_some(folder, 9, small, resume=True).result.final == whole.result.final


def test_no_partial_files_are_left(tmp_path, small):
    run_some(tmp_path / "run", 4, small)
    assert not list((tmp_path / "run").rglob("*.part"))
    assert not list((tmp_path / "run").rglob("*.pkl"))


def test_selection_is_on_validation_and_recommendations_come_from_the_selected_round(demo):
    split = fedrec.HONEST.split(demo, seed=0)
    run = fedrec.train(fedrec.create("fedmf", lr=0.3, epochs=5), split, rounds=12, progress=False, device="cpu")
    best = run.result.selected_round
    assert best < 12, "this setting overfits, so an early round must win"
    again = fedrec.train(fedrec.create("fedmf", lr=0.3, epochs=5), split, rounds=best, progress=False, device="cpu")
    assert run.result.test == again.result.final.test
    assert torch.equal(run.trainer.scores(torch.arange(5)), again.trainer.scores(torch.arange(5)))


def test_honest_logs_never_show_test(tmp_path, demo, small):
    run_some(tmp_path / "honest", 3, small)
    assert "test" not in (tmp_path / "honest" / "metrics.jsonl").read_text()
    run_some(tmp_path / "paper", 3, fedrec.PAPER.split(demo, seed=0))
    assert "test" in (tmp_path / "paper" / "metrics.jsonl").read_text()


def test_six_lines_of_python(tmp_path):
    data = fedrec.load("demo")
    split = fedrec.HONEST.split(data, seed=0)
    run = fedrec.train(fedrec.create("fedmf", data="demo"), split, rounds=3, progress=False, source={"name": "demo"})
    top = run.recommend("u14", k=10)
    run.save(tmp_path / "mine")
    assert fedrec.load_run(tmp_path / "mine").recommend("u14", k=10) == top


def test_a_run_that_was_never_evaluated_can_still_end(tmp_path, small):
    folder = tmp_path / "run"
    interrupted_after(folder, 4, small, evaluate_every=50)
    again = run_some(folder, 4, small, evaluate_every=50, resume=True)
    assert again.result.rounds == 4
    assert again.result.selected_round == 4


def test_no_validation_items_is_an_error(demo):
    protocol = fedrec.HETEFEDREC.with_options(validation_ratio=0.0)
    with pytest.raises(FedrecError, match="no validation items"):
        fedrec.train(fedrec.create("popularity"), protocol.split(demo), progress=False, device="cpu")


def test_the_result_says_which_round_the_model_is_of(small, monkeypatch):
    options = {"rounds": 6, "progress": False, "device": "cpu"}
    kept = fedrec.train(fedrec.create("fedmf", lr=0.5), small, **options).result
    assert kept.model_round == kept.selected_round
    monkeypatch.setattr("fedrec.running.selection.available", lambda device: 0)
    lost = fedrec.train(fedrec.create("fedmf", lr=0.5), small, **options).result
    assert lost.model_round == 6
    assert lost.test == kept.test


def test_state_on_disk_needs_the_cpu_and_a_folder(small):
    with pytest.raises(ConfigError, match="run folder"):
        fedrec.train(fedrec.create("fedmf"), small, store="disk", device="cpu", progress=False)


@pytest.mark.parametrize("store", ["memory", "disk"])
def test_the_best_round_is_remembered_when_a_run_goes_on(tmp_path, demo, store):
    split, method = fedrec.HONEST.split(demo, seed=0), fedrec.create("fedem", variant="code", epochs=2)
    whole = run_some(tmp_path / "whole", 9, split, method)
    assert whole.result.selected_round < 8, "what this learns is of no use, so an early round must win"
    interrupted_after(tmp_path / "run", 8, split, method, store=store)
    again = run_some(tmp_path / "run", 9, split, method, store=store, resume=True)
    for key in ("selected_round", "model_round", "validation", "test", "final", "bytes", "views"):
        assert getattr(again.result, key) == getattr(whole.result, key)
    assert again.recommend(split.data.user_ids[2]) == whole.recommend(split.data.user_ids[2])
    assert fedrec.load_run(tmp_path / "run").recommend(split.data.user_ids[2]) == whole.recommend(
        split.data.user_ids[2]
    )


def test_other_ways_to_score_are_measured_where_somebody_reads_them(small, monkeypatch):
    asked, measure = [], Selection.measure
    monkeypatch.setattr(Selection, "measure", lambda self, *views: (asked.append(views), measure(self, *views))[1])

    def trained(rounds):
        asked.clear()
        method = fedrec.create("pfedrec", lr=3.0, lr_item=300.0)
        return fedrec.train(method, small, rounds=rounds, device="cpu", progress=False).result

    whole = trained(8)
    measured = list(asked)
    (view,), chosen = whole.views, whole.selected_round
    assert 1 < chosen < 8, "the last round must not be the best one for this to say anything"
    assert measured.count((None,)) == 8
    assert 1 < measured.count((view,)) < 8
    assert whole.views[view].final != whole.views[view].test == trained(chosen).views[view].final


def test_uploads_before_an_interruption_count_for_privacy(tmp_path, small):
    options = {"privacy": fedrec.Privacy(clip=0.1, scale=1.0)}
    interrupted_after(tmp_path / "run", 6, small, **options)
    again = run_some(tmp_path / "run", 9, small, resume=True, **options).result.privacy
    assert again.most_uploads_of_a_client == 9
    assert again == run_some(tmp_path / "whole", 9, small, **options).result.privacy


def test_a_resumed_run_sends_the_noise_it_would_have_sent(tmp_path, small):
    """The secrets are in the checkpoint, so what a server hears twice is the same twice."""
    options = {"privacy": fedrec.Privacy(clip=0.1, scale=1.0)}
    interrupted_after(tmp_path / "run", 6, small, **options)
    shutil.copytree(tmp_path / "run", tmp_path / "twin")
    one, other = (run_some(tmp_path / name, 9, small, resume=True, **options).result for name in ("run", "twin"))
    for key in ("selected_round", "validation", "test", "final"):
        assert getattr(one, key) == getattr(other, key)
    new = run_some(tmp_path / "new", 9, small, **options).result
    assert new.final != one.final, "the seed does not say what the noise is"


def test_a_saved_model_has_no_secrets(tmp_path, small):
    options = {"privacy": fedrec.Privacy(clip=0.1, scale=1.0)}
    run = run_some(tmp_path / "run", 3, small, **options)
    assert any(name.startswith("secret.") for name in run.trainer.state())
    for path in (tmp_path / "run").rglob("*.safetensors"):
        assert not any(name.startswith("secret") for name in load_file(path)), path
    again = fedrec.load_run(tmp_path / "run")
    assert again.recommend(small.data.user_ids[2]) == run.recommend(small.data.user_ids[2])
