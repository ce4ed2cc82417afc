"""A method in one file, named by its path and class, is trained, tuned, compared, listed and read back."""

import re
import socket
from pathlib import Path

import pytest

import fedrec
from command_line import refused, run, strict
from fedrec import methods
from fedrec.errors import ConfigError
from fedrec.methods.own_file import checksum_of, found_from_anywhere

PAGE = (Path(__file__).parents[2] / "docs" / "add-a-method.md").read_text()
CODE = next(code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "class FedBias(" in code)
QUIET = ("--quiet", "--json", "--device", "cpu")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mymethod.py"
    path.write_text(CODE)
    return path


def test_it_trains_and_is_read_back_with_its_class(capsys, tmp_path, file):
    named = f"{file}:FedBias"
    words = ("--data", "demo", "--rounds", "2", "--set", "epochs=1", *QUIET)
    code, out, err = run(capsys, "train", named, *words, "--out", tmp_path / "run")
    assert code == 0, err
    assert strict(out)["method"] == "fedbias"
    with pytest.raises(ConfigError, match="fedbias"):
        fedrec.load_run(tmp_path / "run")
    again = fedrec.load_run(tmp_path / "run", method=named)
    assert again.test == {part: strict(out)["test"][part] for part in ("sampled", "full")}
    words_of_list = ("recommend", tmp_path / "run", "--user", "u444", "--json")
    assert "(method)" in refused(capsys, *words_of_list)
    assert len(strict(run(capsys, *words_of_list, "--method", named)[1])["items"]) == 10
    with pytest.raises(ConfigError, match="trained with 'fedbias', not with 'fedmf'"):
        fedrec.load_run(tmp_path / "run", method=methods.find("fedmf"))
    assert run(capsys, "report", tmp_path / "run", "-o", tmp_path / "page.html")[0] == 0
    merged = strict(run(capsys, "train", named, *words, "--merge", "static")[1])
    assert (merged["method"], merged["config"]["merge"]) == ("fedbias+static", "static")


def test_it_is_exported_asked_and_served_with_its_class(capsys, tmp_path, file, monkeypatch):
    pytest.importorskip("uvicorn")
    monkeypatch.delenv("FEDREC_TOKEN", raising=False)
    named, model = f"{file}:FedBias", tmp_path / "model"
    run(capsys, "train", named, "--data", "demo", "--rounds", "1", *QUIET, "--out", tmp_path / "run")
    assert run(capsys, "export", tmp_path / "run", "-o", model, "--method", named)[0] == 0
    words = ("recommend", model, "--history", "i312,i7", "-k", "3", "--json")
    assert "(method)" in refused(capsys, *words)
    assert len(strict(run(capsys, *words, "--method", named)[1])["items"]) == 3
    with socket.create_server(("127.0.0.1", 0)) as taken:  # so that it does not begin to listen
        words = ("serve", model, "--port", taken.getsockname()[1])
        assert "(method)" in refused(capsys, *words)
        assert "cannot be listened on" in refused(capsys, *words, "--method", named)


def test_it_is_listed_compared_and_tuned(capsys, tmp_path, file):
    named = f"{file}:FedBias"
    about = strict(run(capsys, "methods", named, "--json")[1])
    assert (about["name"], "bias_decay" in about["settings"]) == ("fedbias", True)
    words = ("--data", "demo", "--rounds", "1", "--out", tmp_path / "studies", "--quiet", "--json", "--device", "cpu")
    code, out, err = run(capsys, "compare", named, "popularity", "--seeds", "1", "--jobs", "1", *words)
    assert code == 0, err
    assert [row["label"] for row in strict(out)["rows"]] == ["fedbias", "popularity"]
    code, out, err = run(capsys, "tune", named, "--trials", "1", "--set", "epochs=1", *words)
    assert code == 0, err
    best = tmp_path / "studies" / "tune-fedbias-demo-honest-0" / "best.toml"
    assert strict(run(capsys, "train", "--config", best, *QUIET)[1])["method"] == "fedbias"


def test_its_name_in_a_configuration_is_found_from_every_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("mine/m.py:X", "./mine/m.py:X"):
        assert found_from_anywhere(name) == f"{tmp_path.resolve()}/mine/m.py:X"
    assert found_from_anywhere("fedmf+static") == "fedmf+static"


def test_what_the_file_holds_is_part_of_what_is_run(file):
    before = methods.find(f"{file}:FedBias"), checksum_of(f"{file}:FedBias")
    assert methods.find(f"{file}") is before[0]
    file.write_text(CODE.replace("an item bias", "another bias"))
    after = methods.find(f"{file}:FedBias"), checksum_of(f"{file}:FedBias")
    assert before[0] is not after[0]
    assert before[1] != after[1]
    assert after[0].title.endswith("another bias")


def test_run_folders_and_servers_name_no_files(file):
    with pytest.raises(ConfigError, match="unknown method"):
        methods.rebuild(f"{file}:FedBias", {})


@pytest.mark.parametrize(
    ("content", "name", "words"),
    [
        (None, "none.py:X", "cannot be read"),
        ("x = 1 +", "m.py:X", "cannot be run (SyntaxError"),
        ("import nowhere_at_all", "m.py:X", "nowhere_at_all"),
        ("X = 1", "m.py", "no method"),
        ("class X: pass", "m.py:X", "is no method"),
        (CODE, "m.py:FedBiass", "did you mean 'FedBias'?"),
        (CODE.replace('"fedbias"', '"fedmf"'), "m.py:FedBias", "another name"),
        (CODE + "\n\nclass Two(FedBias):\n    pass\n", "m.py", "2 methods (FedBias, Two)"),
        ("from fedrec.method import SumMethod\nclass X(SumMethod):\n    name = title = 'x'\n", "m.py:X", "lacks"),
        ("from fedrec.method import SumMethod\nclass X(SumMethod):\n    title = 'x'\n", "m.py:X", "has no name"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(capsys, tmp_path, content, name, words):
    if content is not None:
        (tmp_path / "m.py").write_text(content)
    assert words in refused(capsys, "train", tmp_path / name, "--data", "demo", *QUIET)
