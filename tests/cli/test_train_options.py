"""Options of ``fedrec train`` that change where a run keeps things or what it is judged on."""

import json
import sys
import tomllib
import types

import pytest

import fedrec
from command_line import refused, run, strict
from fedrec import methods
from fedrec.running.toml import toml_lines

QUIET = ("--quiet", "--json", "--device", "cpu")


@pytest.fixture(scope="module")
def shop(demo, tmp_path_factory):
    """The embedded data as a file, and two pairs of every third user as a published test part."""
    folder = tmp_path_factory.mktemp("shop")
    rows = [(demo.user_ids[u], demo.item_ids[i]) for u, i in zip(demo.users, demo.items, strict=True)]
    held, times = [], {}
    for user, item in dict.fromkeys(rows):
        times[user] = times.get(user, 0) + 1
        if user.endswith("3") and times[user] <= 2:
            held.append((user, item))
    (folder / "rows.csv").write_text("user,item\n" + "".join(f"{u},{i}\n" for u, i in rows))
    (folder / "test.csv").write_text("user,item\n" + "".join(f"{u},{i}\n" for u, i in held))
    return folder, set(held)


def test_a_split_file_is_what_is_held_out(capsys, tmp_path, shop):
    folder, held = shop
    words = ("train", "popularity", "--data", str(folder / "rows.csv"), "--split-file", str(folder / "test.csv"))
    code, out, _ = run(capsys, *words, "--out", str(tmp_path / "run"), *QUIET)
    assert code == 0
    result = strict(out)
    assert result["protocol"].startswith("given")
    assert result["source"]["split_file"] == str((folder / "test.csv").resolve())
    split = fedrec.load_run(tmp_path / "run").split
    names = [
        (split.data.user_ids[u], split.data.item_ids[i])
        for u, i in zip(split.test.items.owners, split.test.items.values, strict=True)
    ]
    assert set(names) == held
    assert len(names) == len(held)
    trained = split.training.positives
    assert not held & {
        (split.data.user_ids[u], split.data.item_ids[i]) for u, i in zip(trained.owners, trained.values, strict=True)
    }


def test_a_split_file_with_strangers_is_refused(capsys, tmp_path, shop):
    (tmp_path / "test.csv").write_text("user,item\n1,no such item\n")
    words = ("train", "popularity", "--data", str(shop[0] / "rows.csv"), "--split-file", str(tmp_path / "test.csv"))
    assert "no such item" in refused(capsys, *words, *QUIET)


@pytest.mark.parametrize("method", ["fedmf", "fedem"])
def test_state_on_disk_goes_on_where_it_ended(capsys, tmp_path, method):
    def train(name, store, rounds, *more):
        words = ("train", method, "--data", "demo", "--set", "epochs=1", "--rounds", str(rounds), "--store", store)
        code, out, err = run(capsys, *words, "--out", str(tmp_path / name), *QUIET, *more)
        assert code == 0, err
        return strict(out)

    whole = train("whole", "memory", 4)
    train("halves", "disk", 2, "--keep-checkpoints")
    resumed = train("halves", "disk", 4, "--resume")
    for key in ("final", "test", "validation", "bytes", "selected_round", "rounds", "groups", "catalogue"):
        assert resumed[key] == whole[key], key
    lines = [json.loads(line) for line in (tmp_path / "halves" / "metrics.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3, 4]
    assert not (tmp_path / "halves" / "store").exists()
    offered = [fedrec.load_run(tmp_path / name).recommend("u444") for name in ("whole", "halves")]
    assert offered[0] == offered[1]


def test_item_tables_in_half_precision_go_on_where_they_ended(capsys, tmp_path):
    def train(name, store, rounds, *more):
        words = ("train", "fedem", "--data", "demo", "--set", "epochs=1", "--set", "dim=4", "--rounds", str(rounds))
        return run(capsys, *words, "--store", store, "--out", str(tmp_path / name), *QUIET, *more)

    full, whole = (strict(train(store, store, 4)[1]) for store in ("memory", "disk-half"))
    assert train("halves", "disk-half", 2, "--keep-checkpoints")[0] == 0
    code, _, err = train("halves", "disk", 4, "--resume")
    assert (code, "half_precision true, not false" in " ".join(err.split())) == (2, True)
    resumed = strict(train("halves", "disk-half", 4, "--resume")[1])
    for key in ("final", "test", "validation", "bytes"):
        assert resumed[key] == whole[key], key
    lines = [(tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("memory", "disk-half", "halves")]
    before, after, again = ([json.loads(line)["loss"] for line in found] for found in lines)
    assert after == again
    assert after != before
    assert after == pytest.approx(before, rel=0.01)
    users, tables = 4 * 4 + 4 * adapter_size(4), 4 * 400 * 4
    assert full["private_state_mb"] == pytest.approx(500 * (users + tables) / 1e6)
    assert whole["private_state_mb"] == pytest.approx(500 * (users + tables / 2) / 1e6)
    offered = [fedrec.load_run(tmp_path / name).recommend("u444") for name in ("disk-half", "halves")]
    assert offered[0] == offered[1]


def adapter_size(dim):
    return (2 * dim + 1) * 16 + 17 * 8 + 9


def test_every_number_of_a_round_is_logged_for_tensorboard(capsys, tmp_path, monkeypatch):
    logged, closed = [], []

    class SummaryWriter:
        def __init__(self, folder):
            assert folder == str(tmp_path / "run" / "tensorboard")

        def add_scalar(self, name, value, step):
            logged.append((name, value, step))

        def flush(self):
            pass

        def close(self):
            closed.append(True)

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", types.SimpleNamespace(SummaryWriter=SummaryWriter))
    words = ("train", "fedmf", "--data", "demo", "--rounds", "2", "--set", "epochs=1", "--tensorboard")
    code, _, _ = run(capsys, *words, "--out", str(tmp_path / "run"), *QUIET)
    assert code == 0
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert {step for _, _, step in logged} == {1, 2}
    for line in lines:
        here = {name: value for name, value, step in logged if step == line["round"]}
        assert line["loss"] in here.values()
        assert line["validation"]["full"]["ndcg@10"] in here.values()
        assert line["bytes_up"] in here.values()
    assert closed == [True]


def test_tensorboard_that_is_not_there_is_a_sentence(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    words = ("train", "popularity", "--data", "demo", "--tensorboard", "--out", str(tmp_path / "run"))
    assert "pip install" in refused(capsys, *words, *QUIET)


def test_options_of_a_configuration_count_for_the_split_too_and_the_command_line_wins(capsys, tmp_path):
    (tmp_path / "c.toml").write_text(
        '[run]\nseed = 3\nrounds = 1\nevaluate_every = 2\nprogress = false\n[settings]\nmerge = "static"\n'
    )
    words = ("train", "fedmf", "--data", "demo", "--config", str(tmp_path / "c.toml"), "--json", "--device", "cpu")
    code, out, said = run(capsys, *words)
    found = strict(out)
    assert (code, said) == (0, "")
    assert (found["seed"], found["split_seed"], found["config"]["merge"]) == (3, 3, "static")
    assert found["split_hash"] == fedrec.HONEST.split(fedrec.load("demo"), 3).hash
    found = strict(run(capsys, *words, "--seed", "4", "--merge", "replace")[1])
    assert (found["seed"], found["split_seed"], found["config"]["merge"]) == (4, 4, "replace")
    (tmp_path / "c.toml").write_text("[run]\nrounds = 1\nevaluate_every = 2\n")
    assert "--evaluate-every 2 looks at some" in run(capsys, *words, "--protocol", "paper")[2]


def numbers(found):
    return {
        key: found[key] for key in ("config_hash", "split_hash", "test", "final", "validation", "privacy", "rounds")
    }


def test_a_run_is_repeated_from_the_configuration_beside_it(capsys, tmp_path, shop, monkeypatch):
    """Every option that changes a number comes back from the file, with paths that are found from elsewhere."""
    monkeypatch.chdir(shop[0])
    words = ("--set", "epochs=2", "--set", "lr=0.02", "--merge", "static", "--seed", "3", "--rounds", "2")
    words += ("--protocol", "honest", "--protocol-set", "candidates=50", "--ldp", "gaussian", "--ldp-reproducible")
    code, out, err = run(capsys, "train", "fedmf", "--data", "rows.csv", *words, "--out", tmp_path / "one", *QUIET)
    assert code == 0, err
    monkeypatch.chdir(tmp_path)
    code, again, err = run(capsys, "train", "--config", "one/config.toml", "--out", "two", "--json", "--quiet")
    assert code == 0, err
    assert numbers(strict(again)) == numbers(strict(out))
    assert (tmp_path / "two/config.toml").read_text() == (tmp_path / "one/config.toml").read_text()
    changed = strict(run(capsys, "train", "--config", "one/config.toml", "--set", "lr=0.5", "--json", "--quiet")[1])
    assert (changed["config"]["lr"], changed["config"]["epochs"]) == (0.5, 2)
    assert changed["protocol_options"]["candidates"] == 50


def test_a_split_file_is_repeated_and_another_protocol_wins_over_it(capsys, tmp_path, shop):
    words = ("--data", shop[0] / "rows.csv", "--split-file", shop[0] / "test.csv", *QUIET)
    code, out, err = run(capsys, "train", "popularity", *words, "--out", tmp_path / "run")
    assert code == 0, err
    file = ("--config", tmp_path / "run" / "config.toml", "--json", "--quiet")
    assert numbers(strict(run(capsys, "train", *file)[1])) == numbers(strict(out))
    assert strict(run(capsys, "train", *file, "--protocol", "honest")[1])["protocol"] == "honest"


def test_a_resumed_run_keeps_its_rounds_in_its_configuration(capsys, tmp_path):
    words = ("train", "popularity", "--data", "demo", "--out", tmp_path / "run", *QUIET, "--keep-checkpoints")
    for more in (("--rounds", "1"), ("--rounds", "2", "--resume"), ("--resume",)):
        assert run(capsys, *words, *more)[0] == 0
    assert "rounds = 2\n" in (tmp_path / "run" / "config.toml").read_text()


@pytest.mark.parametrize("name", methods.names())
def test_settings_of_every_method_come_back_from_a_file(name):
    for merge in (None, "elastic"):
        try:
            made = fedrec.create(name, merge=merge)
        except fedrec.ConfigError:  # it has no table to merge
            continue
        text = "[settings]\n" + "\n".join(toml_lines(made.describe_config()))
        again = fedrec.create(name, tomllib.loads(text)["settings"])
        assert (again.name, again.describe_config()) == (made.name, made.describe_config())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rounds = 'many'", "rounds is 'many'"),
        ("rounds = -1", "rounds is -1"),
        ("rounds = [1]", "takes one value"),
        ("keep-model = 1", "use true or false"),
        ("seed = true", "seed is True"),
        ("settings = 3", "table of names and values"),
        ("protocols = 'honest'", "did you mean 'protocol'"),
    ],
)
def test_a_value_that_an_option_cannot_have_is_one_sentence(capsys, tmp_path, text, words):
    (tmp_path / "c.toml").write_text(text)
    assert words in refused(capsys, "train", "fedmf", "--data", "demo", "--config", tmp_path / "c.toml", *QUIET)


def test_a_configuration_without_a_method_needs_one(capsys, tmp_path):
    (tmp_path / "c.toml").write_text("rounds = 1")
    code, _, err = run(capsys, "train", "--config", tmp_path / "c.toml", "--data", "demo")
    assert code == 2
    assert "METHOD" in err
