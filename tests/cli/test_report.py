"""``fedrec report`` and ``fedrec plot`` as they are typed."""

import pytest

from cli.test_commands import run


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    import fedrec

    split = fedrec.HONEST.split(fedrec.load("demo"), seed=0)
    folder = tmp_path_factory.mktemp("runs")
    for method in ("popularity", "random", "ease"):
        fedrec.train(method, split, out=folder / method, rounds=1, progress=False)
    return [str(folder / name) for name in ("popularity", "random", "ease")]


def test_three_runs_are_one_page(capsys, tmp_path, trained):
    pytest.importorskip("plotly")
    page = tmp_path / "report.html"
    code, out, err = run(capsys, "report", *trained, "-o", str(page))
    assert (code, out) == (0, "")
    assert f"{page}: 2.0 MB" in err.replace("\n", "")
    text = page.read_text()
    assert "<h1>3 runs on demo</h1>" in text
    assert all(f'<th scope="row">{name}</th>' in text for name in ("popularity", "random", "ease"))


def test_three_runs_are_some_files(capsys, tmp_path, trained):
    pytest.importorskip("matplotlib")
    code, _, err = run(capsys, "plot", *trained, "--out", str(tmp_path / "plots"), "--format", "svg")
    names = sorted(path.name for path in (tmp_path / "plots").iterdir())
    assert code == 0
    assert names == [f"runs-{name}.svg" for name in ("bytes", "clients", "groups", "table-1", "table-2")]
    assert all(name in err for name in names)


@pytest.mark.parametrize("command", ["report", "plot"])
def test_what_cannot_be_read_is_one_sentence(capsys, tmp_path, command):
    code, _, err = run(capsys, command, str(tmp_path / "nothing"), "--out", str(tmp_path / "out"))
    assert code == 2
    assert "does not exist; give the folder of a finished run, or of a study." in err.replace("\n", " ")
    assert not (tmp_path / "out").exists()


def test_a_page_that_cannot_be_written_is_one_sentence(capsys, tmp_path, trained):
    pytest.importorskip("plotly")
    (tmp_path / "file").write_text("")
    code, _, err = run(capsys, "report", trained[0], "-o", str(tmp_path / "file" / "report.html"))
    assert code == 2
    assert "cannot be written" in err
