"""Names come from data: no command reads them as mark-up, pictures or commands to the terminal."""

import io

import pytest

import fedrec
from command_line import run
from fedrec.cli import quickstart, splitting
from fedrec.screen import Screen

ITEMS = ("[rec] 31", "[/x28] film", ":star:", "[bold]", "a [link=x]b[/link]", "[/]", "\x1b[31mred")
USER = "[/u] :heart:"
FILE = "[rec] x[red].csv"


@pytest.fixture
def data(tmp_path):
    """Everybody has other items, and the odd ones are the most popular that the user with the odd name has not."""
    rows = []
    for u in range(40):
        mine = [f"[i]{u * 13 + k}" for k in range(11)]
        rows += [(f"[u]{u}", item) for item in ([*ITEMS, *mine] if u else mine)]
    rows += [(USER, f"[i]{k}") for k in range(300, 312)]
    path = tmp_path / FILE
    path.write_text("user,item\n" + "".join(f'"{user}","{item}"\n' for user, item in rows))
    return path


def shown(name):
    return name.replace("\x1b", "\ufffd")


def test_every_command_prints_names_as_they_are(capsys, data, tmp_path):
    folder = tmp_path / "run [b] [/x]"
    title = FILE.removesuffix(".csv")
    code, out, err = run(capsys, "train", "fedmf", "--set", "epochs=1", "--data", data, "--out", folder, "--rounds", 2)
    assert code == 0, err
    assert f"{title}: test results" in out
    assert f"fedmf on {title} (honest): round 1/2" in err
    code, out, err = run(capsys, "recommend", folder, "--user", USER, "-k", 1000)
    assert code == 0, err
    assert f"for user {USER}" in out
    for item in (*ITEMS, "[i]13"):
        assert f"\n{shown(item)} " in out, item
    assert "\x1b" not in out
    assert f"{title}: test results" in run(capsys, "show", folder)[1]
    assert f"{data}: 41 users" in run(capsys, "data", "get", data)[2]
    assert run(capsys, "data", "stats", data)[0] == 0
    code, out, err = run(capsys, "audit", "--data", data, "--rounds", "1", "--protocol", "honest")
    assert code == 0, err
    assert str(data) in out.replace("\n", "")


def test_several_runs_and_folders_that_are_none(capsys, data, tmp_path):
    good, other, bad = tmp_path / "[/a]", tmp_path / "b", tmp_path / "[/x] :star:"
    run(capsys, "train", "popularity", "--data", data, "--out", good, "--quiet")
    run(capsys, "train", "popularity", "--data", "demo", "--out", other, "--quiet")
    code, out, err = run(capsys, "show", other, good, bad)
    assert code == 2
    assert f"error: {bad} holds no finished run" in err
    assert FILE.removesuffix(".csv")[:10] in out


@pytest.mark.parametrize(
    "words",
    [
        ("train", "[/x]"),
        ("train", "fedmf", "--data", "[/x]"),
        ("train", "fedmf", "--data", "demo", "--protocol", "[/x]"),
        ("train", "fedmf", "--data", "demo", "--protocol-set", "[/x]=1"),
        ("train", "fedmf", "--data", "demo", "--merge", "[/x]"),
        ("train", "fedmf", "--data", "demo", "--device", "[/x]"),
        ("train", "fedmf", "--data", "demo", "--store", "[/x]"),
        ("train", "fedmf", "--data", "demo", "--ldp", "[/x]"),
        ("train", "fedmf", "--data", "demo", "--set", "optimizer=[/x]", "--set", "nope=[/x]"),
        ("train", "fedmf", "--data", "demo", "--rounds", "[/x]"),
        ("train", "fedmf", "[/x]"),
        ("[/x]",),
        ("audit", "--data", "demo", "--rounds", "[/x]"),
        ("audit", "--data", "demo", "--protocol", "[/x]"),
        ("bench", "--case", "[/x]"),
        ("data", "stats", "[/x]"),
        ("data", "get", "[/x]"),
        ("methods", "[/x]"),
        ("quickstart", "--data", "[/x]"),
        ("recommend", "[/x]", "--user", "1"),
    ],
)
def test_mistakes_are_repeated_as_they_were_made(capsys, words):
    code, out, err = run(capsys, *words)
    assert code == 2
    assert out == ""
    assert "[/x]" in err or "nope" in err
    assert "Traceback" not in err


def test_quickstart_and_long_splits(capsys, data, monkeypatch):
    monkeypatch.setattr(quickstart, "RUNS", (("popularity", 1),))
    monkeypatch.setattr(quickstart, "read_data", lambda name, folder: (fedrec.read_csv(data), {"name": name}))
    code, out, err = run(capsys, "quickstart")
    assert code == 0, err
    assert "recommends to user [u]0" in " ".join(out.split())
    assert "[rec] 31" in out
    monkeypatch.setattr(splitting, "LONG", 1)
    console = Screen(file=io.StringIO(), force_terminal=True, width=80)
    monkeypatch.setattr(splitting, "err", console)
    splitting.split_data(fedrec.HONEST, fedrec.read_csv(data), 0)


def test_a_table_of_a_method_is_printed_as_it_is(capsys):
    from fedrec.cli.common import out
    from fedrec.cli.tables import method_table
    from fedrec.federation.result import ResultTable

    out.print(method_table(ResultTable(title="[/t]", columns=["[/c]", ":star:"], rows=[["[/x28] film", "[rec] 31"]])))
    text = capsys.readouterr().out
    for name in ("[/t]", "[/c]", ":star:", "[/x28] film", "[rec] 31"):
        assert name in text
