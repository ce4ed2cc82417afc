"""Options of a run: checked, changed, and the same ones everywhere."""

import shutil

import numpy as np
import pytest
import torch

import fedrec
from fedrec.errors import ConfigError, FedrecError
from fedrec.methods import create
from fedrec.running.saved import read_per_client, read_result

QUIET = {"progress": False, "device": "cpu"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"round": 3}, "unknown option of a run 'round'; did you mean 'rounds'"),
        ({"rounds": -1}, "option rounds is -1: .*greater than or equal to 0"),
        ({"evaluate_every": 0}, "option evaluate_every is 0"),
        ({"seed": 2**63}, "option seed"),
        ({"store": "disc"}, "option store is 'disc': .*'memory', 'disk' or 'disk-half'"),
        ({"privacy": {"clip": -1.0}}, r"option privacy\.clip is -1\.0"),
        ({"privacy": {"mechanism": "central", "clip": -2.0}}, r"option privacy\.clip is -2\.0"),
        ({"resume": True}, "resuming a run needs a run folder"),
        ({"store": "disk"}, "needs a run folder"),
        ({"tensorboard": True}, "needs a run folder"),
        ({"device": "tpu"}, "unknown device 'tpu'"),
    ],
)
def test_a_bad_option_is_one_sentence(small, options, words):
    with pytest.raises(ConfigError, match=words) as found:
        fedrec.train("popularity", small, progress=False, **options)
    assert "\n" not in str(found.value)


def test_options_in_an_object_and_changes_of_it(small):
    options = fedrec.RunOptions(rounds=2, evaluate_every=2, **QUIET)
    result = fedrec.train("fedmf", small, options, rounds=1, seed=np.int64(4)).result
    assert (result.rounds, result.seed, result.selected_round) == (1, 4, 1)
    assert options.rounds == 2
    with pytest.raises(ConfigError, match="option rounds"):
        options.changed(rounds=-1)


def test_a_name_means_the_settings_tuned_for_the_split(demo):
    for protocol in (fedrec.HONEST, fedrec.PAPER, fedrec.HONEST.with_options(candidates=50)):
        base = protocol.name.rstrip("*")
        run = fedrec.train("fedmf", protocol.split(demo), rounds=1, **QUIET)
        assert run.method.config == create("fedmf", protocol=base, data="demo").config
    assert (
        create("fedmf", protocol="paper", data="demo").config != create("fedmf", protocol="honest", data="demo").config
    )


def test_threads_are_those_of_the_run_only(small, other_threads):
    before = torch.get_num_threads()
    assert fedrec.train("popularity", small, threads=other_threads, **QUIET).result.threads == other_threads
    assert torch.get_num_threads() == before


def test_without_a_folder_nothing_is_written(small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fedrec.train("fedmf", small, rounds=2, checkpoint_every=1, **QUIET)
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_its_model_keeps_its_results(small, tmp_path):
    run = fedrec.train("fedmf", small, rounds=2, out=tmp_path / "run", keep_model=False, **QUIET)
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert left == {"run.json", "lock", "metrics.jsonl", "result.json", "per_client.safetensors", "manifest.json"}
    assert read_result(tmp_path / "run") == run.result
    values = read_per_client(tmp_path / "run")["test"].full["ndcg@10"]
    assert values.tolist() == run.per_client["test"].full["ndcg@10"].tolist()
    with pytest.raises(FedrecError, match="results without a model; train again and keep the model"):
        fedrec.load_run(tmp_path / "run")


def test_state_on_disk_is_in_the_folder_while_a_run_goes_on(small, tmp_path):
    found = set()

    class Look(fedrec.Listener):
        def round(self, line):
            found.update(path.name for path in (tmp_path / "run" / "store").rglob("*") if path.stat().st_size)

    for store in ("memory", "disk"):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        fedrec.train("local", small, rounds=1, out=tmp_path / "run", store=store, listeners=[Look()], **QUIET)
        assert ("items.bin" in found) == (store == "disk")
