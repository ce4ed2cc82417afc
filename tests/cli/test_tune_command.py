"""``fedrec tune`` and ``fedrec compare``: options become what the functions are asked, results become tables."""

import pytest

from command_line import refused, run, strict
from fedrec.cli.compare import _by_method
from fedrec.errors import ConfigError

pytest.importorskip("optuna", reason="needs the extra 'tune'")


def test_the_best_trials_are_a_table_with_the_best_first(capsys, tmp_path):
    words = ("tune", "fedmf", "--data", "demo", "--trials", "3", "--rounds", "2", "--evaluate-every", "1", "--quiet")
    where = ("--out", tmp_path, "--set", "dim=4", "--set", "epochs=1")
    code, out, _ = run(capsys, *words, *where)
    assert code == 0
    assert "fedmf on demo: the best 10 trials at most" in out
    assert "fedrec train --config" in out
    code, text, _ = run(capsys, *words, *where, "--json")
    said = strict(text)
    finished = sorted((one for one in said["trials"] if one["value"] is not None), key=lambda one: -one["value"])
    assert len(finished) == 3
    rows = [line.split()[:2] for line in out.splitlines() if line.split()[:1] and line.split()[0].isdigit()]
    assert rows == [[str(one["number"] + 1), f"{one['value']:.4f}"] for one in finished]
    assert said["best"]["value"] == finished[0]["value"]
    code, csv, err = run(capsys, *words, *where, "--format", "csv")
    assert code == 0
    assert len(csv.strip().splitlines()) == 4
    assert "fedrec train --config" in err, "a table to be read by programs has nothing beside it"


def test_a_fixed_setting_that_does_not_exist_is_refused(capsys, tmp_path):
    words = ("tune", "fedmf", "--data", "demo", "--out", tmp_path, "--set", "dimm=4")
    assert "did you mean 'dim'" in refused(capsys, *words)


def test_settings_of_several_methods_are_told_apart():
    found = _by_method(["a:lr=0.5", "b:dim=4", "a:agg=size"])
    assert found == {"a": {"lr": 0.5, "agg": "size"}, "b": {"dim": 4}}
    assert _by_method([]) == {}


@pytest.mark.parametrize("pair", ["lr=0.5", "lr=a:b", "fedmf"])
def test_a_setting_without_a_method_is_refused(capsys, tmp_path, pair):
    with pytest.raises(ConfigError, match=r"^--set takes method:key=value here, not '"):
        _by_method([pair])
    words = ("compare", "fedmf", "popularity", "--data", "demo", "--out", tmp_path, "--set", pair)
    assert refused(capsys, *words) == f"error: --set takes method:key=value here, not '{pair}'.\n"


@pytest.mark.parametrize("name", ["compare", "tune", "reproduce"])
@pytest.mark.parametrize("where", [(), ("interrupted in trial 2; it goes on there.",)])
def test_who_interrupts_is_told_that_the_same_command_goes_on(capsys, monkeypatch, name, where):
    def interrupted(*given, **options):
        raise KeyboardInterrupt(*where)

    monkeypatch.setattr(f"fedrec.cli.{name}.{name}", interrupted)
    words = {"compare": ("fedmf", "popularity"), "tune": ("fedmf",), "reproduce": ("leaderboard",)}
    code, out, said = run(capsys, name, *words[name])
    assert (code, out) == (130, "")
    assert said.strip() == (where[0] if where else "interrupted; the same command goes on.")


def test_a_comparison_is_a_table_of_its_methods(capsys, tmp_path):
    words = (
        "compare",
        "popularity",
        "random",
        "--data",
        "demo",
        "--out",
        tmp_path,
        "--seeds",
        "1",
        "--quiet",
        "--jobs",
        "1",
    )
    code, out, _ = run(capsys, *words)
    assert code == 0
    assert "popularity" in out
    assert "random" in out
    code, text, _ = run(capsys, *words, "--json")
    assert code == 0
    assert [row["label"] for row in strict(text)["rows"]] == ["popularity", "random"]
