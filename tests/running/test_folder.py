"""A run folder holds one run, for one process at a time, and only that run goes on in it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fedrec
from fedrec.errors import ConfigError, FedrecError
from fedrec.methods.fedmf import FedMF
from fedrec.running import checkpoint
from fedrec.running.lock import locked
from fedrec.running.options import RunOptions

QUIET = {"progress": False, "device": "cpu", "checkpoint_every": 2}


class Kill(fedrec.Listener):
    """Ends a run after a round, as a kill would."""

    def __init__(self, after):
        self.after = after

    def round(self, line):
        if line["round"] == self.after:
            raise KeyboardInterrupt


def train(split, folder, *, rounds=6, settings=None, **options):
    return fedrec.train(
        FedMF(**({"epochs": 1} | (settings or {}))), split, out=folder, rounds=rounds, **QUIET | options
    )


@pytest.fixture
def cut(small, tmp_path):
    """A run that was killed in its sixth round."""
    with pytest.raises(KeyboardInterrupt):
        train(small, tmp_path / "run", listeners=[Kill(5)])
    return tmp_path / "run"


def resume(split, folder, **changes):
    return train(split, folder, resume=True, **changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"settings": {"lr": 0.7}}, r"a run with lr 0.01, not 0.7; resume it with its own settings"),
        ({"settings": {"dim": 4}}, r"dim 16, not 4"),
        ({"seed": 5}, r"seed 0, not 5"),
        ({"evaluate_every": 3}, r"evaluate_every 1, not 3"),
        ({"privacy": fedrec.Privacy()}, r"privacy mechanism null, not laplace"),
    ],
)
@pytest.mark.parametrize("without", [(), ("run.json",)])
def test_only_the_same_run_goes_on_and_what_differs_is_named(cut, small, changes, words, without):
    for name in without:  # then the checkpoint says which run this is
        (cut / name).unlink()
    with pytest.raises(ConfigError, match=words):
        resume(small, cut, **changes)


@pytest.mark.parametrize("without", [(), ("run.json",)])
def test_noise_of_another_kind_is_another_run(small, tmp_path, without):
    with pytest.raises(KeyboardInterrupt):
        train(small, tmp_path / "run", listeners=[Kill(5)], privacy=fedrec.Privacy(scale=0.5))
    for name in without:
        (tmp_path / "run" / name).unlink()
    with pytest.raises(ConfigError, match=r"privacy scale 0.5, not 0.25"):
        resume(small, tmp_path / "run", privacy=fedrec.Privacy(scale=0.25))
    assert (
        resume(small, tmp_path / "run", privacy=fedrec.Privacy(scale=0.5)).result.privacy.most_uploads_of_a_client == 6
    )


def test_another_method_or_protocol_or_other_data_are_other_runs(cut, small, honest):
    with pytest.raises(ConfigError, match="method fedmf, not popularity"):
        fedrec.train("popularity", small, out=cut, resume=True, **QUIET)
    with pytest.raises(ConfigError, match=r"data small, not demo"):
        resume(honest, cut)
    rows = fedrec.from_frame(
        {"user": small.data.users[:-1].tolist(), "item": small.data.items[:-1].tolist()}, name="small"
    )
    with pytest.raises(ConfigError, match="other data"):
        resume(small.protocol.split(rows), cut)
    with pytest.raises(ConfigError, match="candidates 20, not 21"):
        resume(fedrec.HONEST.with_options(min_interactions=5, candidates=21).split(small.data), cut)


def test_settings_changed_by_hand_are_noticed(cut, small):
    known = json.loads((cut / "run.json").read_text())
    (cut / "run.json").write_text(json.dumps(known | {"config_hash": "0" * 64}))
    with pytest.raises(ConfigError, match="changed by hand"):
        resume(small, cut)


def test_a_wrong_name_begins_no_run(small, tmp_path):
    with pytest.raises(ConfigError, match=r"typo holds no run to resume; check its name"):
        resume(small, tmp_path / "typo")
    assert not (tmp_path / "typo").exists()


def test_a_folder_that_holds_a_run_is_not_used_for_another(cut, small):
    with pytest.raises(ConfigError, match="already holds a run; resume it or choose another"):
        train(small, cut)


def test_a_resumed_run_has_the_rounds_it_began_with(cut, small, tmp_path):
    result = resume(small, cut, rounds=None).result
    assert result.rounds == 6
    assert result.final == train(small, tmp_path / "whole").result.final


def test_a_finished_run_is_read_and_not_trained_again(small, tmp_path):
    first = train(small, tmp_path / "run")
    again = resume(small, tmp_path / "run", listeners=[Kill(1)])
    assert again.result == first.result
    assert again.recommend(3) == first.recommend(3)
    for rounds in (5, 7):
        with pytest.raises(ConfigError, match="a finished run of 6 rounds and no checkpoint to add rounds to"):
            resume(small, tmp_path / "run", rounds=rounds)


def test_rounds_that_were_refused_are_not_those_of_the_run(cut, small, tmp_path):
    with pytest.raises(ConfigError, match="already finished 4 rounds"):
        resume(small, cut, rounds=3)
    again = fedrec.train(FedMF(epochs=1), small, out=cut, resume=True, **QUIET)
    assert again.result.rounds == 6
    with pytest.raises(ConfigError, match="a finished run of 6 rounds"):
        resume(small, cut, rounds=9)
    assert fedrec.train(FedMF(epochs=1), small, out=cut, resume=True, **QUIET).result == again.result


def test_rounds_are_added_where_checkpoints_were_kept(small, tmp_path):
    train(small, tmp_path / "run", rounds=5, keep_checkpoints=True)
    heard = []

    class Ear(fedrec.Listener):
        def round(self, line):
            heard.append(line["round"])

    longer = resume(small, tmp_path / "run", rounds=8, listeners=[Ear()])
    assert heard == [6, 7, 8]
    assert longer.result.final == train(small, tmp_path / "whole", rounds=8).result.final
    assert not (tmp_path / "run" / "checkpoints").exists()
    train(small, tmp_path / "other", rounds=5, keep_checkpoints=True)
    with pytest.raises(ConfigError, match="already finished 5 rounds"):
        resume(small, tmp_path / "other", rounds=4)


def test_a_finished_run_keeps_one_copy_of_its_model(small, tmp_path):
    run = train(small, tmp_path / "run", store="disk")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "lock", "manifest.json", "metrics.jsonl", "model", "per_client.safetensors", "private", "result.json", "run.json",
    ]  # fmt: skip
    assert run.recommend(3) == fedrec.load_run(tmp_path / "run").recommend(3)


def test_two_processes_do_not_share_a_folder(cut, small):
    code = "import sys, pathlib; from fedrec.running.lock import locked\nwith locked(pathlib.Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(cut)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout.readline() == "held\n"
        before = (cut / "metrics.jsonl").read_text()
        for _ in range(2):  # asking does not wipe out who holds it
            with pytest.raises(ConfigError, match=rf"is in use by process {other.pid} on .* \(since 2.*\); wait until"):
                resume(small, cut)
        assert (cut / "metrics.jsonl").read_text() == before
    finally:
        other.kill()  # it leaves its words behind, and no lock
        other.communicate()
    assert str(other.pid) in (cut / "lock").read_text()
    assert resume(small, cut).result.rounds == 6
    assert (cut / "lock").read_text() == ""


def test_a_lock_is_let_go_when_the_run_fails(tmp_path):
    with pytest.raises(ZeroDivisionError), locked(tmp_path):
        1 / 0  # noqa: B018
    with locked(tmp_path), pytest.raises(ConfigError, match=f"in use by process {os.getpid()}"), locked(tmp_path):
        pass


def damage(record, name, value):
    changed = json.loads(json.dumps(record))
    where = changed
    *path, last = name.split(".")
    for part in path:
        where = where[part]
    if value is None:
        del where[last]
    else:
        where[last] = value
    return changed


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("history", None),
        ("history.rounds", None),
        ("history.rounds", "many"),
        ("history.lines", [{"round": 1}]),
        ("history.lines", []),
        ("history.rounds", -(2**40)),
        ("best.round", None),
        ("claim", None),
        ("claim.seed", None),
        ("claim.protocol_options", {"candidates": -1}),
        ("sideways", 1),
        ("best.sideways", 1),
    ],
)
def test_a_record_with_missing_extra_or_wrong_fields_is_refused(cut, small, name, value):
    newest = checkpoint.newest(cut / "checkpoints")
    found = checkpoint.load(newest)
    changed = checkpoint.Checkpoint(found.tensors, damage(found.record, name, value))
    checkpoint.save(cut / "checkpoints", int(newest.name), changed)
    with pytest.raises(FedrecError, match="lacks what belongs there; choose another run folder"):
        resume(small, cut)


@pytest.mark.parametrize("how", ["name", "shape", "type", "best", "missing"])
def test_tensors_that_do_not_fit_are_refused(cut, small, how):
    newest = checkpoint.newest(cut / "checkpoints")
    found = checkpoint.load(newest)
    state = dict(found.tensors["state"])
    if how == "name":
        state["server.table"] = state.pop("server.items")
    elif how == "shape":  # one that could be spread over the clients
        state["clients.user"] = state["clients.user"][:1]
    elif how == "type":
        state["server.items"] = state["server.items"].double()
    tensors = found.tensors | {"best_state" if how == "best" else "state": state}
    if how == "best":
        tensors["best_state"] = {name: value for name, value in state.items() if name != "server.items"}
    elif how == "missing":
        del tensors["best_results"]
    checkpoint.save(cut / "checkpoints", int(newest.name), checkpoint.Checkpoint(tensors, found.record))
    with pytest.raises(FedrecError, match=r"does not fit the method \(|lacks what belongs"):
        resume(small, cut)


@pytest.mark.parametrize("name", ["run.json", "checkpoints/000004/checkpoint.json"])
@pytest.mark.parametrize(
    ("version", "words"), [(99, "newer version of fedrec"), (None, "older version"), (True, "older")]
)
def test_files_of_other_versions_are_refused_in_a_sentence(cut, small, name, version, words):
    content = json.loads((cut / name).read_text())
    (cut / name).write_text(json.dumps({**content, "format": version}))
    with pytest.raises(FedrecError, match=words):
        resume(small, cut)


def test_a_note_that_names_files_elsewhere_is_no_checkpoint(cut, small, tmp_path):
    newest = checkpoint.newest(cut / "checkpoints")
    (tmp_path / "state.safetensors").write_bytes((newest / "state.safetensors").read_bytes())
    content = json.loads((newest / "checkpoint.json").read_text())
    content["files"] = {
        f"../../../{name}" if name == "state.safetensors" else name: sum for name, sum in content["files"].items()
    }
    content["checksum"] = checkpoint.checksum_of({key: content[key] for key in ("files", "record")})
    (newest / "checkpoint.json").write_text(json.dumps(content))
    assert checkpoint.newest(cut / "checkpoints") != newest


def test_a_changed_note_is_passed_over(cut, small, tmp_path):
    note = cut / "checkpoints" / "000004" / "checkpoint.json"
    note.write_text(note.read_text().replace('"rounds": 4', '"rounds": 3'))
    assert checkpoint.newest(cut / "checkpoints").name == "000002"
    assert resume(small, cut).result.final == train(small, tmp_path / "whole").result.final


def test_what_somebody_else_put_beside_checkpoints_is_left_alone(cut, small, tmp_path):
    for name in ("backup", "elder"):
        shutil.copytree(cut / "checkpoints" / "000002", cut / "checkpoints" / name)
    assert checkpoint.newest(cut / "checkpoints").name == "000004"
    resume(small, cut, keep_checkpoints=True)
    assert sorted(path.name for path in (cut / "checkpoints").iterdir()) == ["000004", "000006", "backup", "elder"]


def test_docs_name_every_option_and_every_file_of_a_run_folder(small, tmp_path):
    text = (Path(__file__).parents[2] / "docs" / "result.md").read_text()
    fields = RunOptions.model_fields
    assert [name for name in fields if f"| `{name}` |" not in text] == []
    train(small, tmp_path / "run", rounds=1)
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert [path.name for path in files if f"`{path.name}`" not in text] == []
    folders = {path.parent.name for path in files} - {"run"}
    assert [name for name in folders if f"`{name}/`" not in text] == []
