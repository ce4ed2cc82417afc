"""``docs/reproduction.md`` is what the stored results say, with no number typed by hand."""

import json
from pathlib import Path

import pytest

from fedrec.errors import FedrecError
from fedrec.report.gains import closeness, gains, groups
from fedrec.report.reproduction import main, reproduction, stored
from fedrec.studies.result import CellRecord, RowRecord, StudyResult, ValueRecord

DOCS = Path(__file__).parents[2] / "docs"


def record(label, mean, published=None, protocol="paper", data="here", state="finished"):
    value = ValueRecord(
        column="HR@10", mean=mean, spread=0.01, per_seed=[mean], published=published,
        difference=None if published is None or mean is None else mean - published,
    )  # fmt: skip
    cell = CellRecord(
        seed=0,
        state=state,
        folder="",
        config_hash="c" * 64,
        split_hash="5" * 64,
        why=None if state == "finished" else "no room",
    )
    return RowRecord(
        label=label, data=data, protocol=protocol, leaks=protocol == "paper", method="fedmf", settings={}, rounds=5,
        selected_rounds=[3], values=[value], cells=[cell], seconds=61.0, seconds_per_round=0.5, bytes_up=1500.0, bytes_down=2500.0,
    )  # fmt: skip


def study(*rows, name="tiny"):
    return StudyResult(
        kind="study", name=name, title="Tiny", paper="Somebody, Table 1", columns=["HR@10"], data=sorted({row.data for row in rows}),
        protocols=["paper", "honest"], seeds=[0], rows=list(rows), versions={"fedrec": "1"},
    )  # fmt: skip


ROWS = (
    record("MF", 0.51, 0.5), record("MF + EM", 0.8, 0.7), record("GP", 0.40, 0.6), record("MF", 0.5, protocol="honest"),
    record("MF + EM", 0.3, protocol="honest"), record("GP", None, protocol="honest", state="failed"),
)  # fmt: skip


def write(folder, *studies, words="Words."):
    folder.mkdir(exist_ok=True)
    (folder / "words.md").write_text(words)
    for n, one in enumerate(studies):
        (folder / f"{n}.json").write_text(json.dumps(one.model_dump(mode="json")))
    return folder


def test_rows_with_equal_published_values_claim_no_gain():
    assert gains(study(record("A", 0.5, 0.6), record("B", 0.4, 0.6))) == []
    assert len(gains(study(record("A", 0.5, 0.6), record("B", 0.4, 0.7)))) == 1


def test_what_is_declared_and_not_stored_is_named(tmp_path):
    text = reproduction(
        write(tmp_path / "results", study(record("FedEM", 0.9, 0.9, data="ml-100k"), name="fedem-table1"))
    )
    (line,) = [line for line in text.splitlines() if line.startswith("- fedem-table1: without")]
    assert "ml-1m (paper, honest)" in line
    assert "ml-100k (honest)" in line
    (rest,) = [line for line in text.splitlines() if line.startswith("- nothing of")]
    assert "fedem-table2" in rest
    assert "fedem-table1" not in rest


def test_the_page_is_what_the_stored_results_say():
    found = (DOCS / "reproduction.md").read_text(encoding="utf-8")
    assert found == reproduction(DOCS / "results"), "run 'make reproduction'; edit docs/results/words.md, not the page"


def test_without_results_there_are_words_only(tmp_path):
    text = reproduction(write(tmp_path))
    assert text.startswith("# Reproduction\n")
    assert text.endswith("Words.\n")
    assert "Overview" not in text


def test_every_number_of_a_study_is_on_the_page(tmp_path):
    text = reproduction(write(tmp_path, study(*ROWS)))
    assert "| MF | 0.5100 ± 0.0100 | 0.5000 | +0.0100 | 3 | 1.5 | 2.5 | - | 0.50 | 61 |" in text
    assert "| [tiny](#tiny) | here | paper (leaks) | 1 of 3 | -0.2000 | 1 of 2 | 0 |" in text
    assert "| [tiny](#tiny) | here | honest | - | - | 0 of 1 | 1 |" in text
    assert "| here | MF + EM | MF | HR@10 | +0.2000 | +0.2900 | -0.2000 (lost) |" in text
    assert "| here | GP | MF | HR@10 | +0.1000 | -0.1100 (lost) | - |" in text
    assert "- GP, here, honest, seed 0: no room" in text
    assert f"| MF | here | paper | 0 | `{'c' * 16}` | `{'5' * 16}` |" in text
    assert "Made with fedrec 1." in text


def test_another_number_gives_another_page(tmp_path):
    one = reproduction(write(tmp_path, study(*ROWS)))
    assert one == reproduction(tmp_path)
    assert one != reproduction(write(tmp_path, study(record("MF", 0.5101, 0.5), *ROWS[1:])))


def test_parts_of_a_study_are_put_together(tmp_path):
    found = stored(
        write(
            tmp_path, study(record("MF", 0.5)), study(record("MF", 0.6, data="there")), study(record("MF", 1), name="a")
        )
    )
    assert list(found) == ["a", "tiny"]
    assert found["tiny"].data == ["here", "there"]
    assert [row.values[0].mean for row in found["tiny"].rows] == [0.5, 0.6]
    with pytest.raises(FedrecError, match="rows that are there already"):
        stored(write(tmp_path, study(record("MF", 0.5)), study(record("MF", 0.6))))


def test_a_row_is_compared_with_the_one_it_builds_on():
    found = {gain.label: gain for gain in gains(study(*ROWS))}
    assert {label: gain.over for label, gain in found.items()} == {"MF + EM": "MF", "GP": "MF"}
    assert found["MF + EM"].holds("paper")
    assert not found["MF + EM"].holds("honest")
    assert not found["GP"].holds("honest")
    assert found["GP"].published == pytest.approx(0.1)
    chain = study(record("A", 0.1, 0.1), record("A + B", 0.2, 0.2), record("A + B + C", 0.3, 0.3))
    assert [(gain.label, gain.over) for gain in gains(chain)] == [("A + B", "A"), ("A + B + C", "A + B")]
    pairs = study(record("A", 0.1, 0.1), record("A + EM", 0.2, 0.2), record("B", 0.3, 0.3), record("B + EM", 0.5, 0.4))
    assert [(gain.label, gain.over) for gain in gains(pairs)] == [("A + EM", "A"), ("B + EM", "B")]


def test_close_is_within_three_hundredths():
    rows = groups(
        study(record("a", 0.529, 0.5), record("b", 0.471, 0.5), record("c", 0.5302, 0.5), record("d", 0.469, 0.5))
    )
    near, compared, largest = closeness(rows["here", "paper"])
    assert (near, compared) == (2, 4)
    assert abs(largest) == pytest.approx(0.031)


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("tiny | here | paper | MF | HR@10", "0.510"),
        ("tiny | here | paper | MF | HR@10 | published", "0.500"),
        ("tiny | here | paper | GP | HR@10 | difference", "-0.200"),
        ("tiny | here | paper | MF | HR@10 | spread", "0.010"),
        ("tiny | here | paper |\nMF + EM | HR@10 | over MF", "+0.290"),
        ("tiny | here | paper | close", "1 of 3"),
        ("tiny | here | honest | gains", "0 of 1"),
    ],
)
def test_words_get_their_numbers(tmp_path, place, said):
    text = reproduction(write(tmp_path, study(*ROWS), words=f"It is {{{{{place}}}}}."))
    assert f"\nIt is {said}.\n" in text


@pytest.mark.parametrize(
    "place",
    ["other | here | paper | MF | HR@10", "tiny | there | paper | MF | HR@10", "tiny | here | honest | GP | HR@10"],
)
def test_a_paragraph_about_what_is_not_stored_is_left_out(tmp_path, place):
    text = reproduction(write(tmp_path, study(*ROWS), words=f"First.\n\nGone: {{{{{place}}}}}.\n\nLast."))
    assert "Gone" not in text
    assert "First.\n\nLast." in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("It is 0.51.", "a number that was typed"),
        ("It rose by 20 %.", "a number that was typed"),
        ("{{tiny | here | paper | MG | HR@10}}", "unknown row of tiny 'MG'; did you mean 'MF'"),
        ("{{tiny | here | paper | MF | HR@1}}", "unknown column of tiny"),
        ("{{tiny | here | paper | MF | HR@10 | men}}", "unknown kind of value"),
        ("{{tiny | here | paper | closer}}", "unknown count"),
        ("{{tiny | here}}", "has 2 parts"),
    ],
)
def test_mistakes_in_the_words_are_one_sentence(tmp_path, words, said):
    with pytest.raises(FedrecError, match=said):
        reproduction(write(tmp_path, study(*ROWS), words=words))


def test_names_are_text(tmp_path):
    text = reproduction(write(tmp_path, study(record("<b>|x*", 0.5))))
    assert "| &lt;b>\\|x\\* |" in text


def test_the_command_writes_the_page(tmp_path, capsys):
    main([str(write(tmp_path / "results", study(*ROWS))), str(tmp_path / "page.md")])
    assert (tmp_path / "page.md").read_text() == reproduction(tmp_path / "results")
    assert "from 1 stored results" in capsys.readouterr().out
