"""What a filter dropped is counted and said: in Python, in the result, and on the screen."""

import json

import pytest

import fedrec
from command_line import run
from fedrec.data import from_frame
from fedrec.data.filters import filter_and_tell


def shop(users=40, few=12):
    """``few`` users have 4 rows, the others 12; the first user bought an item twice and rated another one 0."""
    rows = [(f"u{u}", f"i{u * 13 + k}", 1.0, k) for u in range(users) for k in range(4 if u < few else 12)]
    rows += [(f"u{users - 1}", rows[-1][1], 1.0, 99), ("u0", "rare", 0.0, 5)]
    return rows


def test_every_rule_says_what_it_took():
    rows = shop()
    data, told = filter_and_tell(
        from_frame(dict(zip(("user", "item", "rating", "timestamp"), zip(*rows, strict=True), strict=True))),
        min_per_user=10,
        positive_only=True,
        duplicates="merge",
    )
    assert (told.given.users, told.given.rows) == (40, len(rows))
    assert (told.kept.users, told.kept.items, told.kept.rows) == (28, data.n_items, 28 * 12)
    assert told.dropped == told.given - told.kept
    found = [(one.why, one.option, one.dropped.users, one.dropped.rows) for one in told.reasons]
    assert found == [
        ("rows rated 0", None, 0, 1),
        ("repeated rows of a user and an item", "duplicates", 0, 1),
        ("users with fewer than 10 rows", "min_interactions", 12, 48),
    ]
    assert told.reasons[0].dropped.items == 1
    for kind in ("users", "items", "rows"):
        assert sum(getattr(one.dropped, kind) for one in told.reasons) == getattr(told.dropped, kind)
    assert "kept 28 of 40 users" in str(told)
    assert "12 users with fewer than 10 rows (min_interactions)" in str(told)


def test_nothing_dropped(demo, honest):
    assert str(honest.filtered) == "500 users, 400 items, 19,654 rows, nothing dropped"
    assert honest.filtered.reasons == []
    assert "of 500 users" not in repr(honest)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "shop.csv"
    path.write_text("user,item,rating,timestamp\n" + "".join(f"{u},{i},{r},{t}\n" for u, i, r, t in shop()))
    return path


def test_a_split_and_the_result_of_a_run_know(file, tmp_path):
    split = fedrec.HONEST.split(fedrec.read_csv(file))
    assert split.filtered.dropped.users == 12
    assert "28 of 40 users" in repr(split)
    run = fedrec.train("popularity", split, out=tmp_path / "run", progress=False)
    assert run.result.filtered == split.filtered
    again = fedrec.load_run(tmp_path / "run")
    assert again.result.filtered == again.split.filtered == split.filtered
    saved = json.loads((tmp_path / "run" / "result.json").read_text())["filtered"]
    assert saved["dropped"] == {"users": 12, "items": 1 + saved["reasons"][2]["dropped"]["items"], "rows": 50}
    assert saved["reasons"][2]["option"] == "min_interactions"
    everybody = fedrec.HONEST.with_options(min_interactions=1)
    assert everybody.split(fedrec.read_csv(file)).filtered.kept.users == 40


def test_train_and_audit_say_who_vanished(capsys, file):
    for words in (("train", "popularity", "--quiet"), ("train", "popularity", "--json"), ("audit", "--rounds", "1")):
        code, out, err = run(capsys, *words, "--data", file)
        assert code == 0, err
        assert "honest: kept 28 of 40 users" in err
        assert "12 users with fewer than 10 rows" in err
        assert "--protocol-set" in err
        assert "min_interactions=N" in err
        assert "kept 18" not in out
    assert "pfedrec: kept 28 of 40 users" in err
    assert "nothing dropped" in run(capsys, "train", "popularity", "--data", "demo")[2]
    assert run(capsys, "train", "popularity", "--data", "demo", "--quiet")[2] == ""


def test_quickstart_says_who_vanished(capsys, monkeypatch, file):
    from fedrec.cli import quickstart

    monkeypatch.setattr(quickstart, "RUNS", (("popularity", 1),))
    monkeypatch.setattr(quickstart, "read_data", lambda name, folder: (fedrec.read_csv(file), {"name": name}))
    code, out, err = run(capsys, "quickstart", "--rounds", "1")
    assert code == 0
    assert "honest: kept 28 of 40 users" in err
    assert "paper: kept 28 of 40 users" in err
    assert "recommends to user" in out


def test_a_given_split_names_no_option_that_would_not_help(capsys, file, tmp_path):
    pairs = tmp_path / "test.csv"
    pairs.write_text("user,item\nu20,i260\n")
    code, _, err = run(capsys, "train", "popularity", "--data", file, "--split-file", pairs, "--quiet")
    assert code == 0, err
    assert "given: kept 40 of 40 users" in err
    assert "--protocol-set" not in err
