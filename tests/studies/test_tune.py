import errno
import json
import os
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import fedrec
from fedrec.cli.app import app
from fedrec.errors import ConfigError, FedrecError
from fedrec.evaluation.evaluator import Evaluator
from fedrec.federation.search import Options, Range, derived
from fedrec.methods import create, names
from fedrec.methods.fedmf import FedMF
from fedrec.protocol import PRESETS
from fedrec.protocol.sealed import sealed
from fedrec.running import files, saving
from fedrec.running.claim import read_claim
from fedrec.running.lock import locked
from fedrec.running.loop import StoppedError
from fedrec.running.saved import read_result
from fedrec.studies import tuning
from fedrec.studies.trials import TrialRecord, read_trials, suggest
from fedrec.studies.tuning import tune

pytest.importorskip("optuna", reason="needs the extra 'tune'")
QUIET = {"progress": False, "data": "demo", "rounds": 3, "evaluate_every": 3}


def pairs(users, items):
    return set(zip(users.tolist(), items.tolist(), strict=True))


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_sealed_split_holds_nothing_of_test(demo, name):
    split = fedrec.preset(name).split(demo, seed=0)
    whole = sealed(split)
    train, test = split.training.positives, split.test.items
    secret = pairs(test.owners, test.values) - pairs(train.owners, train.values)
    assert secret
    assert len(whole.test.items.values) == 0
    assert whole.test.candidates is None
    pool = whole.training.excluded
    for owners, items in (
        (whole.data.users, whole.data.items),
        (pool.owners, pool.values),
        (whole.touched.owners, whole.touched.values),
        (whole.validation.items.owners, whole.validation.items.values),
    ):
        assert not pairs(owners, items) & secret
    assert whole.training.positives is train
    if whole.training.history is not None:
        assert not pairs(whole.training.history.owners, whole.training.history.values) & secret
    assert whole.validation is split.validation
    assert whole.protocol.select_on == "validation"
    assert whole.hash != split.hash


def test_tuning_hands_nothing_of_test_to_an_evaluator(tmp_path, monkeypatch):
    """Whatever is evaluated is evaluated on a split without test items, also under a protocol that selects on test."""
    seen = []
    made = Evaluator.__init__

    def spy(self, split, *rest, **options):
        seen.append(split)
        made(self, split, *rest, **options)

    monkeypatch.setattr(Evaluator, "__init__", spy)
    result = tune("fedmf", protocol="paper", trials=1, out=tmp_path, **QUIET)
    assert [len(split.test.items.values) for split in seen] == [0]
    run = read_result(tmp_path / "tune-fedmf-demo-paper-0" / "trials" / "0000")
    assert np.isnan(run.test.full["ndcg@10"])
    assert run.test.sampled == {}
    assert result.best.value == run.validation["hr@10"]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    out = tmp_path_factory.mktemp("tuning")
    return out, tune("fedmf", trials=4, out=out, **QUIET)


def test_the_first_trial_is_what_the_method_has_and_all_have_one_budget(done):
    out, result = done
    config = create("fedmf", protocol="honest", data="demo").describe_config()
    assert result.trials[0].settings == {name: config[name] for name in ("lr", "epochs", "init_std")}
    runs = [read_result(out / "tune-fedmf-demo-honest-0" / "trials" / f"{number:04}") for number in range(4)]
    assert {run.rounds for run in runs} == {3}
    assert [run.validation.full["ndcg@10"] for run in runs] == [trial.value for trial in result.trials]
    assert result.best.value == max(trial.value for trial in result.trials)
    assert len({json.dumps(trial.settings) for trial in result.trials}) == 4
    assert fedrec.tune is tune


def test_the_best_settings_train_the_same_from_the_command_line(done):
    _, result = done
    text = tomllib.loads(Path(result.config_file).read_text())
    assert text["settings"] == result.best.settings
    said = CliRunner().invoke(
        app, ["train", "--config", result.config_file, "--evaluate-every", "3", "--json", "--quiet"]
    )
    run = json.loads(said.stdout)
    assert (run["data"], run["protocol"], run["rounds"]) == ("demo", "honest", 3)
    assert run["validation"]["full"]["ndcg@10"] == pytest.approx(result.best.value)
    said = CliRunner().invoke(
        app, ["train", "fedmf", "--config", result.config_file, "--rounds", "1", "--set", "lr=0.5", "--json", "--quiet"]
    )
    run = json.loads(said.stdout)
    assert (run["rounds"], run["config"]["lr"], run["config"]["epochs"]) == (1, 0.5, text["settings"]["epochs"])


def test_whatever_people_read_counts_trials_from_one(done, tmp_path, monkeypatch):
    _, result = done
    assert f"# Trial {result.best.number + 1} of 4," in Path(result.config_file).read_text()
    assert [tuning._line(trial, 4, result.trials).split(":")[0] for trial in result.trials][::3] == [
        "trial 1/4",
        "trial 4/4",
    ]

    def interrupted(*given, **options):
        raise StoppedError("interrupted after round 1 of 3.")

    monkeypatch.setattr(tuning.api, "train", interrupted)
    with pytest.raises(KeyboardInterrupt, match="interrupted in trial 1; the same command goes on there"):
        tune("fedmf", trials=4, out=tmp_path, **QUIET)


def test_a_configuration_may_name_any_file_and_any_setting(done):
    _, result = done
    fixed = {"hidden": [8, 4], "agg": "größe", "rho": None, "flag": True, "small": 1e-7}
    text = tuning.toml(result.model_copy(update={"data": 'a "\U0001f3ac"\\b.csv', "fixed": fixed}))
    found = tomllib.loads(text)
    assert found["data"] == 'a "\U0001f3ac"\\b.csv'
    assert found["settings"] == fixed | {"rho": "none"} | result.best.settings


def test_a_log_of_trials_that_is_no_text_is_one_sentence(tmp_path):
    (tmp_path / "trials.jsonl").write_bytes(b"\xff\xfe\n")
    with pytest.raises(FedrecError, match="is damaged; tune in another folder"):
        read_trials(tmp_path / "trials.jsonl")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[setting]\nlr = 1", "did you mean 'settings'"),
        ("[run]\nround = 1", "did you mean 'rounds'"),
        ("[run", "is no TOML"),
        (None, "cannot be read"),
    ],
)
def test_a_mistake_in_a_configuration_is_one_sentence(tmp_path, text, words):
    if text is not None:
        (tmp_path / "c.toml").write_text(text)
    said = CliRunner().invoke(app, ["train", "fedmf", "--data", "demo", "--config", str(tmp_path / "c.toml")])
    assert isinstance(said.exception, ConfigError)
    assert words in str(said.exception)
    assert "\n" not in str(said.exception)


def test_a_search_that_was_cut_short_goes_on_to_the_same_trials(done, tmp_path, monkeypatch):
    """Killed in the third trial: its run is half done and the log's last line is torn."""
    _, whole = done
    made = tuning.add_trial
    runs = []

    def killed(path, trial):
        if trial.number == 2:
            path.open("a").write('{"number": 2, "settings')
            raise KeyboardInterrupt
        made(path, trial)

    monkeypatch.setattr(tuning, "add_trial", killed)
    with pytest.raises(KeyboardInterrupt):
        tune("fedmf", trials=4, out=tmp_path, **QUIET)
    monkeypatch.setattr(tuning, "add_trial", made)
    train = fedrec.api.train
    monkeypatch.setattr(tuning.api, "train", lambda *a, **k: (runs.append(k["out"].name), train(*a, **k))[1])
    result = tune("fedmf", trials=4, out=tmp_path, **QUIET)
    assert runs == ["0003"]
    plain = [[t.model_dump(exclude={"seconds"}) for t in found.trials] for found in (result, whole)]
    assert plain[0] == plain[1]
    assert tune("fedmf", trials=4, out=tmp_path, **QUIET).trials == result.trials
    assert runs == ["0003"]


def test_a_folder_is_for_one_search(done):
    out, _ = done
    with pytest.raises(ConfigError, match="a search with other rounds"):
        tune("fedmf", trials=4, out=out, **QUIET | {"rounds": 4})
    with pytest.raises(ConfigError, match="a search with other fixed"):
        tune("fedmf", trials=4, out=out, settings={"dim": 8}, **QUIET)


def test_a_method_says_how_often_its_trials_are_evaluated(tmp_path, monkeypatch):
    monkeypatch.setattr(FedMF, "evaluate_every", 2)
    tune("fedmf", trials=1, out=tmp_path, **QUIET | {"evaluate_every": None})
    assert read_claim(tmp_path / "tune-fedmf-demo-honest-0" / "trials" / "0000").evaluate_every == 2


def test_settings_may_be_fixed_and_trials_may_fail(tmp_path, monkeypatch):
    monkeypatch.setattr(create("fedmf").Config, "space", {"init_std": Range(0.01, 1.0, log=True)})
    fixed = {"dim": 4, "lr": 1e30, "optimizer": "sgd"}
    with pytest.raises(FedrecError, match=r"none of the 2 trials came to an end; the first says: .*lower lr"):
        tune("fedmf", trials=2, settings=fixed, out=tmp_path, **QUIET)
    with pytest.raises(ConfigError, match="no settings to search"):
        tune("popularity", out=tmp_path, **QUIET)


def test_the_first_trial_is_what_the_method_has_also_where_that_is_outside_of_what_is_searched(tmp_path, monkeypatch):
    space = {"lr": Range(1e29, 1e30, log=True), "optimizer": Options(("sgd",))}
    monkeypatch.setattr(create("fedmf").Config, "space", space)
    result = tune("fedmf", trials=2, settings={"dim": 4}, out=tmp_path, **QUIET)
    usual = create("fedmf", protocol="honest", data="demo").describe_config()
    assert result.trials[0].settings == {name: usual[name] for name in space}
    assert [trial.state for trial in result.trials] == ["finished", "failed"]
    assert result.best.number == 0


def test_what_no_settings_can_mend_is_no_trial(tmp_path, monkeypatch):
    log = tmp_path / "tune-fedmf-demo-honest-0" / "trials.jsonl"
    for options in ({"device": "nowhere"}, {"threads": 10**6}, {"evaluate_every": 0}):
        with pytest.raises(ConfigError):
            tune("fedmf", trials=1, out=tmp_path, **QUIET | options)
        assert not log.exists()
    whole, full = files.write_tensors, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def no_room(path, tensors):
        with files.writing(path):
            raise full

    monkeypatch.setattr(saving, "write_tensors", no_room)
    with pytest.raises(FedrecError, match="No space left on device"):
        tune("fedmf", trials=1, out=tmp_path, **QUIET)
    assert not log.exists()
    monkeypatch.setattr(saving, "write_tensors", whole)
    with locked(log.parent / "trials" / "0000"), pytest.raises(FedrecError, match="is in use by"):
        tune("fedmf", trials=1, out=tmp_path, **QUIET)
    assert tune("fedmf", trials=1, out=tmp_path, **QUIET).trials[0].state == "finished"


def test_what_is_suggested_depends_on_the_trials_and_the_seed_alone():
    space = {"lr": Range(1e-3, 1.0, log=True), "epochs": Range(1, 10, whole=True), "rule": Options(("a", "b"))}
    trials = [
        TrialRecord(
            number=n, settings={"lr": 0.6**n, "epochs": 1 + n % 9, "rule": "ab"[n % 2]}, state="finished",
            value=-abs(n - 3.0), selected_round=1, seconds=1.0,
        )
        for n in range(12)
    ]  # fmt: skip
    trials[5] = trials[5].model_copy(update={"state": "failed", "value": None})
    first = suggest(space, trials, 1)
    assert suggest(space, trials, 1) == first
    assert suggest(space, trials, 2) != first
    assert suggest(space, trials[:-1], 1) != first
    assert all(space[name].holds(value) for name, value in first.items())
    assert isinstance(first["epochs"], int)
    found = [suggest(space, trials, seed)["lr"] for seed in range(20)]
    assert 0.05 < np.median(found) < 0.5  # near the best so far, 0.216


def test_every_method_has_a_space_of_its_settings_or_none():
    for name in names():
        config = create(name).Config
        space = config.search_space()
        assert space.keys() <= config.model_fields.keys(), name
        for key, wanted in config.space.items():
            for value in wanted.values if isinstance(wanted, Options) else (wanted.low, wanted.high):
                config(**{key: int(value) if getattr(wanted, "whole", False) else value})
    assert derived({"lr": 0.1, "lr_item": None, "agg": "sum", "epochs": 5, "flag": True, "reg": 0.0}) == {
        "lr": Range(0.1 / 30, 3.0, log=True), "epochs": Range(1, 10, whole=True)
    }  # fmt: skip


def test_without_the_library_there_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigError, match=r"pip install 'fedrec\[tune\]'"):
        tune("fedmf", out=tmp_path, **QUIET)


def test_tables_for_other_programs(done):
    _, result = done
    frame = result.to_pandas()
    assert frame["value"].tolist() == [trial.value for trial in result.trials]
    assert json.loads(frame["settings"][0]) == result.trials[0].settings
