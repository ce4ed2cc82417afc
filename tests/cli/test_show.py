"""Results side by side: whole heads, what differs in a column, the best first, and broken folders named."""

import pytest

from command_line import refused, run, strict
from fedrec.cli import tables
from fedrec.screen import Screen

QUIET = ("--data", "demo", "--quiet")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Folders of finished runs: two data sets, three protocols, good and bad ones."""
    import fedrec

    place = tmp_path_factory.mktemp("runs")
    demo = fedrec.load("demo")
    rows = {"user": demo.users[:18_000], "item": demo.items[:18_000]}
    less = fedrec.from_frame(rows, name="other-data-with-a-long-name")
    for name, method, data, protocol in (
        ("bad", "random", demo, fedrec.HONEST),
        ("good", "popularity", demo, fedrec.HONEST),
        ("leaky", "popularity", demo, fedrec.PAPER),
        ("full", "popularity", demo, fedrec.HETEFEDREC),
        ("other", "popularity", less, fedrec.HONEST),
    ):
        fedrec.train(method, protocol.split(data), out=place / name, progress=False)
    (place / "unfinished").mkdir()
    (place / "unfinished" / "run.json").write_text("{}")
    return place


@pytest.fixture(params=[80, 120])
def width(request, monkeypatch):
    monkeypatch.setattr(tables, "out", Screen(width=request.param))
    return request.param


def test_heads_are_whole_and_lines_fit(capsys, runs, width):
    for names in (["good"], ["full"], ["good", "bad", "leaky"], ["good", "other"], ["leaky", "other", "full"]):
        code, out, _ = run(capsys, "show", *(runs / name for name in names))
        assert code == 0
        assert max(map(len, out.splitlines())) <= width, names
        assert "…" not in out
        words = out.split()
        for head in ("method", "protocol", "round"):
            assert head in words, names
        assert ("s/round" in words) == ("data" not in words or "full" in names)


def test_a_data_column_where_data_differ(capsys, runs, width):
    assert " data " not in f" {run(capsys, 'show', runs / 'good', runs / 'bad')[1]} "
    out = run(capsys, "show", runs / "good", runs / "other")[1]
    assert "\ndata " in out
    assert "\ndemo " in out
    assert "\nother" in out


def test_sorted_by_data_protocol_and_the_first_metric(capsys, runs, width):
    names = ("other", "leaky", "bad", "good")
    lines = run(capsys, "show", *(runs / name for name in names))[1].splitlines()
    rows = [line.split()[:3] for line in lines if "popularity" in line or "random" in line]
    assert rows == [
        ["demo", "popularity", "honest"],
        ["demo", "random", "honest"],
        ["demo", "popularity", "paper"],
        [rows[3][0], "popularity", "honest"],
    ]


def test_goes_on_past_what_it_cannot_read(capsys, runs, tmp_path):
    code, out, err = run(capsys, "show", runs / "unfinished", tmp_path / "nowhere", runs / "good", runs / "good")
    assert code == 2
    assert out.count("popularity") == 1
    assert "unfinished holds no finished run" in err
    assert "nowhere holds no finished run" in err
    code, out, err = run(capsys, "show", runs / "unfinished", runs / "good", "--json")
    assert code == 2
    assert [found["method"] for found in strict(out)] == ["popularity"]
    assert "unfinished" in refused(capsys, "show", runs / "unfinished", "--json")


def test_folders_of_studies_are_passed_over(capsys, runs, tmp_path):
    """As runs/* has them: all of them in runs/studies, or one of them."""
    for name in ("whole/cells", "searched/tune-a", "one", "search"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("searched/tune-a/tuning.json", "one/study.json", "search/tuning.json"):
        (tmp_path / name).write_text("{}")
    places = [tmp_path / name for name in ("whole", "searched", "one", "search")]
    code, out, err = run(capsys, "show", *places, runs / "good")
    assert (code, out.count("popularity")) == (0, 1)
    assert err.splitlines() == [f"passed over, as they hold studies: {', '.join(map(str, places))}"]
    code, out, _ = run(capsys, "show", places[0], runs / "good", "--json")
    assert (code, [found["method"] for found in strict(out)]) == (0, ["popularity"])
    code, _, err = run(capsys, "show", places[0], runs / "good", runs / "unfinished")
    assert code == 2
    assert "whole" in err
    assert "unfinished holds no finished run" in err
    assert "holds no finished run" in refused(capsys, "show", places[0])
    code, out, err = run(capsys, "show", *places)
    assert (code, out, err.count("holds no finished run")) == (2, "", 4)


def test_merge_modes_have_labels_of_their_own(capsys, monkeypatch):
    from fedrec.methods import create

    modes = ("replace", "static", "dynamic", "elastic", "none")
    labels = [create("fedem", merge=mode).label for mode in modes]
    assert labels == ["fedem merge=replace", "fedem merge=static", "fedem merge=dynamic", "fedem", "fedem merge=none"]
    assert [create("fedmf", merge=mode).label for mode in modes] == [f"fedmf+{mode}" for mode in modes]
    assert len({create("hetefedrec", merge=mode).label for mode in modes}) == len(modes)
    short = (*QUIET, "--rounds", "1", "--set", "epochs=1")
    monkeypatch.setattr(tables, "out", Screen(width=160))
    out = run(capsys, "train", "fedem", "--merge", "static", *short)[1]
    assert "fedem merge=static" in " ".join(out.split())


def test_what_a_client_sends_is_in_the_table(capsys, runs, width):
    result = strict(run(capsys, "show", runs / "good", "--json")[1])
    found = result[0] if isinstance(result, list) else result
    up, down = (found["bytes"][f"{way}_per_client_round"] / 1e3 for way in ("up", "down"))
    assert f"{up:.1f}" != f"{down:.1f}"
    out = run(capsys, "show", runs / "good")[1]
    assert next(line for line in out.splitlines() if line.startswith("popularity")).split()[-1] == f"{up:.1f}"
