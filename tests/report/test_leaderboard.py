"""``docs/leaderboard.md``, its picture and the README's table are what the stored results say."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fedrec.errors import FedrecError
from fedrec.report.leaderboard import BEGIN, END, PAGE, PICTURE, RESULTS, main, page, picture, stored, with_top
from fedrec.studies.result import CellRecord, RowRecord, StudyResult, TestRecord, ValueRecord
from fedrec.studies.study import find

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def record(method, quality, up=0.0, finished=2, data="ml-100k"):
    values = {
        "full NDCG@10": quality,
        "full HR@10": 0.2,
        "NDCG@10": 0.4,
        "HR@10": 0.6,
        "bytes up": up,
        "bytes down": 2 * up,
    }
    cells = [
        CellRecord(seed=n, state="finished" if n < finished else "missing", folder="", config_hash="c", split_hash="s")
        for n in range(2)
    ]
    return RowRecord(
        label=method, data=data, protocol="honest", leaks=False, method=method, settings={}, rounds=1,
        selected_rounds=[1] * finished, cells=cells, seconds=3.0, seconds_per_round=1.0, bytes_up=1.0, bytes_down=1.0,
        values=[
            ValueRecord(column=name, mean=value if finished else None, spread=None, per_seed=[])
            for name, value in values.items()
        ],
    )  # fmt: skip


@pytest.fixture
def study():
    rows = [
        record("ease", 0.07),
        record("fedslist", 0.1, 5e6, finished=1),
        record("fedfast", 0.03, 5e7),
        record("fedrap", 0, finished=0),
    ]
    test = TestRecord(
        data="ml-100k", protocol="honest", metric="full ndcg@10", label="ease", reference="fedslist", users=9, difference=-0.03,
        low=-0.04, high=-0.02, bootstrap_p=0.01, bootstrap_holm=0.01, wilcoxon_p=0.0001, wilcoxon_holm=0.0002,
    )  # fmt: skip
    return StudyResult(
        kind="study", name="leaderboard", title="All", columns=[], data=["ml-100k"], protocols=["honest"], seeds=[0, 1], rows=rows,
        tests=[test],
    )  # fmt: skip


def test_rows_that_all_have_fewer_seeds_are_not_named_one_by_one(study):
    rows = [
        row.model_copy(update={"cells": [*row.cells[:1], row.cells[0].model_copy(update={"state": "missing"})]})
        for row in study.rows
    ]
    text = page(study.model_copy(update={"rows": rows}))
    assert "All rows: 1 of 2 seeds." in text
    assert "Fewer seeds" not in text


def test_nothing_on_the_pages_is_typed_by_hand():
    known = stored(DOCS / RESULTS)
    assert (DOCS / PAGE).read_text(encoding="utf-8") == page(known), "run 'make leaderboard'; do not edit the page"
    assert (DOCS / PICTURE).read_text(encoding="utf-8") == picture(known), "run 'make leaderboard'"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme == with_top(readme, known), "run 'make leaderboard'; do not edit the README's table"


def test_stored_rows_are_rows_of_the_study():
    known = stored(DOCS / RESULTS)
    labels = {row.label for row in find("leaderboard").rows}
    assert {row.label for row in known.rows} == labels
    assert known.name == "leaderboard"
    assert all(row.protocol == "honest" and not row.leaks for row in known.rows)


def test_rows_are_ranked_by_quality_against_all_items_and_missing_ones_are_named(study):
    text = page(study)
    places = [text.index(f"| {name} |") for name in ("fedslist", "ease", "fedfast")]
    assert places == sorted(places)
    assert "Not run: fedrap." in text
    assert "Fewer seeds: fedslist (1 of 2)." in text
    (line,) = [line for line in text.splitlines() if line.startswith("| ease |")]
    assert line.split(" | ")[1:] == [
        "0.0700",
        "0.2000",
        "0.4000",
        "0.6000",
        "-0.0300",
        "< 0.001",
        "3",
        "0.0",
        "0.0",
        "all data",
        "- |",
    ]
    (line,) = [line for line in text.splitlines() if line.startswith("| fedslist |")]
    assert line.split(" | ")[5:10] == ["ref", "ref", "3", "5.0", "10.0"]
    assert "| every upload |" in next(line for line in text.splitlines() if line.startswith("| fedfast |"))


def test_the_picture_is_of_these_values(study):
    root = ElementTree.fromstring(picture(study))
    points = {}
    circles = [e for e in root.iter() if e.tag.endswith("circle") and e.get("r") == "4"]
    names = [e.text for e in root.iter() if e.tag.endswith("text") and e.text in ("ease", "fedslist", "fedfast")]
    for name, circle in zip(names, circles, strict=True):
        points[name] = float(circle.get("cx")), float(circle.get("cy"))
    assert points["ease"][0] < points["fedslist"][0] < points["fedfast"][0]
    assert points["fedslist"][1] < points["ease"][1] < points["fedfast"][1]


def test_the_readme_changes_between_its_marks_only(study):
    readme = f"# Title\n\n{BEGIN}\nold\n{END}\nrest\n"
    found = with_top(readme, study)
    assert found.startswith(f"# Title\n\n{BEGIN}\n")
    assert found.endswith(f"{END}\nrest\n")
    assert "old" not in found
    assert "| fedslist | 0.100 | 0.200 | 0.400 | 0.600 | 15.0 | sums only |" in found
    with pytest.raises(FedrecError, match="lacks"):
        with_top("# Title", study)


def test_parts_are_put_together_and_later_files_win(study, tmp_path):
    folder = tmp_path / RESULTS
    folder.mkdir(parents=True)
    with pytest.raises(FedrecError, match="holds no results"):
        stored(folder)
    (folder / "a.json").write_text(json.dumps(study.model_dump(mode="json")))
    other = study.model_copy(
        update={
            "rows": [record("ease", 0.08), record("fedfast", 0.0, finished=0), record("ease", 0.5, data="filmtrust")],
            "data": ["ml-100k", "filmtrust"],
            "tests": [],
        }
    )
    (folder / "b.json").write_text(json.dumps(other.model_dump(mode="json")))
    readme = tmp_path / "README.md"
    readme.write_text(f"{BEGIN}\n{END}\n")
    main([str(tmp_path), str(readme)])
    text = (tmp_path / PAGE).read_text()
    assert "| ease | 0.0800 |" in text
    assert "| fedfast | 0.0300 |" in text  # what is not there replaces nothing
    assert text.index("## ml-100k") < text.index("## filmtrust")
    assert "No results are stored for ml-1m, lastfm-2k, amazon-video." in text
    assert "fedslist" in readme.read_text()


@pytest.mark.parametrize("replaced", ["ease", "fedslist", "fedfast"])
def test_a_test_is_shown_beside_the_two_runs_it_compares_and_no_others(study, tmp_path, replaced):
    other = study.model_copy(update={"rows": [record(replaced, 0.09)], "tests": []})
    for name, part in (("a", study), ("b", other)):
        (tmp_path / f"{name}.json").write_text(json.dumps(part.model_dump(mode="json")))
    assert bool(stored(tmp_path).tests) == (replaced == "fedfast")
