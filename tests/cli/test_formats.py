"""Tables as Markdown, LaTeX and CSV: the numbers of the screen's table, and every sign as the form wants it."""

import csv
import io

import pytest

from command_line import run, strict
from fedrec.cli.tables import plain_table
from fedrec.cli.written import written

AWKWARD = plain_table(["what", "n"], [["a|b_c & 5% \\ [x]", "1"], ['say "hi", then', "20"]], title="T_1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    import fedrec

    place = tmp_path_factory.mktemp("runs") / "one"
    split = fedrec.HONEST.split(fedrec.load("demo"), seed=0)
    return place, fedrec.train("popularity", split, out=place, progress=False, device="cpu").result


def test_show_prints_what_papers_and_programs_read(capsys, folder):
    place, result = folder
    value = f"{result.test.sampled['hr@10']:.4f}"
    rows = list(csv.DictReader(io.StringIO(run(capsys, "show", place, "--format", "csv")[1])))
    assert [(row["method"], row["HR@10"]) for row in rows] == [("popularity", value)]
    markdown = run(capsys, "show", place, "--format", "markdown")[1]
    assert "| method | protocol | HR@10 |" in markdown
    assert f"| popularity | honest | {value} |" in markdown
    latex = run(capsys, "show", place, "--format", "latex")[1]
    assert rf"  popularity & honest & {value} &" in latex
    assert strict(run(capsys, "show", place, "--format", "json")[1]) == result.model_dump(mode="json")


@pytest.mark.parametrize("words", [["methods"], ["methods", "fedem"], ["protocols"], ["data", "list"], ["reproduce"]])
def test_lists_are_tables_and_nothing_else(capsys, words):
    """Hints go elsewhere, and nothing is cut."""
    code, out, _ = run(capsys, *words, "--format", "csv")
    rows = list(csv.reader(io.StringIO(out)))
    assert code == 0
    assert len(rows) > 2
    assert len({len(row) for row in rows}) == 1
    assert "…" not in out
    assert strict(run(capsys, *words, "--format", "json")[1]) == strict(run(capsys, *words, "--json")[1])


def test_signs_that_mean_something_are_written_out():
    assert written(AWKWARD, "markdown").splitlines() == [
        "T_1", "", "| what | n |", "| --- | ---: |", r"| a\|b_c & 5% \ [x] | 1 |", '| say "hi", then | 20 |',
    ]  # fmt: skip
    lines = written(AWKWARD, "latex").splitlines()
    assert r"  a|b\_c \& 5\% \textbackslash{} [x] & 1 \\" in lines
    assert r"\begin{tabular}{lr}" in lines
    assert written(AWKWARD, "csv").splitlines() == ["what,n", r"a|b_c & 5% \ [x],1", '"say ""hi"", then",20']


def test_a_comparison_is_one_table_of_plain_numbers(capsys, tmp_path):
    """What table.csv holds, which says of every number what it is of."""
    words = ("compare", "popularity", "random", "--data", "demo", "--data", tmp_path / "mine.csv", "--seeds", "2")
    (tmp_path / "mine.csv").write_text(
        "user,item\n" + "".join(f"{u},{u % 40 + k * 5}\n" for u in range(30) for k in range(12))
    )
    words = (*words, "--protocol", "honest:candidates=20", "--rounds", "1", "--out", tmp_path / "out", "--quiet")
    code, out, _ = run(capsys, *words, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    found = strict(run(capsys, *words, "--json")[1])
    assert code == 0
    assert out == (tmp_path / "out" / found["name"] / "table.csv").read_text()
    wanted = [(row["data"], row["label"], value["column"]) for row in found["rows"] for value in row["values"]]
    assert [(row["data"], row["row"], row["column"]) for row in rows] == wanted
    assert {row["protocol"] for row in rows} == {"honest:candidates=20"}
    values = [value for row in found["rows"] for value in row["values"]]
    assert [(float(row["mean"]), float(row["spread"])) for row in rows] == [(v["mean"], v["spread"]) for v in values]
