import re
import tomllib
from pathlib import Path

import pytest

from fedrec.errors import ConfigError
from fedrec.federation.config import validated
from fedrec.federation.privacy import PrivacyStage
from fedrec.methods import create
from fedrec.studies import study as studies
from fedrec.studies.cell import Cell, SplitFacts, planned

TINY = """
title = "Two methods"
data = ["demo"]
protocols = ["paper", "honest"]
columns = ["hr@10", {title = "KB up", value = "bytes.up_per_client_round"}]
rounds = 3

[[rows]]
label = "Popular"
method = "popularity"
rounds = 1
published = {demo = [0.5]}

[[rows]]
label = "MF"
method = "fedmf"
"""


def test_a_study_is_read_from_a_short_text():
    study = studies.parse(TINY, "tiny")
    assert study.name == "tiny"
    assert [column.title for column in study.columns] == ["HR@10", "KB up"]
    assert study.rows[0].published == {"demo": (0.5,)}
    assert study.rows[1].rounds is None


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("title =", "titel =", "unknown setting of study tiny 'titel'; did you mean 'title'?"),
        ("method = \"fedmf\"", "methode = \"fedmf\"", "row MF 'methode'; did you mean 'method'?"),
        ("value =", "valu =", "column 2 'valu'; did you mean 'value'?"),
        ("demo = [0.5]", "dmo = [0.5]", "row 'Popular' names 'dmo', which is not among the data sets"),
        ("demo = [0.5]", "demo = [0.5, 1, 1]", "more published values than there are columns"),
        ('"MF"', '"Popular"', "two rows are called 'Popular'"),
        ("rounds = 3", "rounds = -3", "study tiny: setting rounds"),
        ("rounds = 3", "rounds = ", "is no TOML"),
        ('["hr@10", {title = "KB up", value = "bytes.up_per_client_round"}]', "true", "columns are a list of texts"),
        ('"hr@10"', '["hr@10"]', "columns are a list of texts"),
        ("demo = [0.5]", "demo = [true]", "row Popular: setting published: this is a number, not true or false"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_study_is_one_sentence(before, after, said):
    assert before in TINY
    with pytest.raises(ConfigError) as caught:
        studies.parse(TINY.replace(before, after, 1), "tiny")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("rows", ["3", '["a"]', '"MF"'])
def test_rows_that_are_no_tables_are_refused(rows):
    with pytest.raises(ConfigError, match=r"rows are tables, written \[\[rows\]\]"):
        studies.parse(f"rows = {rows}\ncolumns = []", "tiny")


def test_an_unknown_study_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match="did you mean 'fedem-table2'"):
        studies.find("fedem-tabel2")


def test_a_study_may_be_a_file_of_ones_own(tmp_path):
    (tmp_path / "mine.toml").write_text(TINY)
    assert studies.find(str(tmp_path / "mine.toml")).name == "mine"
    with pytest.raises(ConfigError, match=r"no\.toml cannot be read"):
        studies.find(str(tmp_path / "no.toml"))


def test_the_page_about_studies_has_a_whole_one_and_every_key():
    page = (Path(__file__).parents[2] / "docs" / "studies.md").read_text().split("## A study file")[1].split("\n## ")[0]
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    study = studies.parse(example, "mine")
    assert study.name == "mine"
    for row in study.rows:
        create(row.method, row.settings, protocol=study.protocols[0], data=study.data[0])
    told = [table.partition("\n\n")[0] for table in page.split("| key of a ")[1:]]
    for kind, table in zip((studies.Study, studies.Column, studies.Row), told, strict=True):
        keys = {key for line in table.splitlines()[2:] for key in re.findall(r"`(\w+)`", line.split("|")[1])}
        assert keys == set(kind.model_fields)
    forms = re.findall(r"\| `(\w+)` \|[^|]+\|[^|]*as `(\{.*?\})`", page)
    assert [name for name, _ in forms] == ["choose", "under", "privacy", "sweep", "published"]
    for name, value in forms:
        key, given = next(iter(tomllib.loads(f"{name} = {value}").items()))
        validated(studies.Row, "a row", {"label": "a", "method": "fedmf", key: given})


def test_combinations_are_all_of_them():
    found = studies.combinations({"a": [1, 2], "b": ["x", "y"]})
    assert found == [{"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "x"}, {"a": 2, "b": "y"}]
    assert studies.combinations(None) == [{}]


@pytest.mark.parametrize("name", studies.names())
def test_every_row_of_every_shipped_study_can_be_made(name):
    study = studies.find(name)
    assert "\n" not in study.title
    for row in study.rows:
        for protocol in row.protocols or study.protocols:
            for data in row.data or study.data:
                for sweep in studies.combinations(row.sweep):
                    for chosen in studies.combinations(row.choose if row.choose is not None else study.choose):
                        settings = row.settings | row.under.get(protocol, {}) | sweep | chosen
                        create(row.method, settings, protocol=protocol, data=data, merge=row.merge)


def test_noise_without_clipping_is_labelled_as_what_it_is():
    study = studies.find("fedem-table4")
    noisy = [row for row in study.rows if row.privacy is not None]
    assert len(noisy) == 2
    for row in noisy:
        assert row.privacy.clip is None
        assert row.privacy.scale > 0
        assert "no guarantee" in row.label
        assert PrivacyStage(row.privacy, 0).describe(1)["verdict"].startswith("no guarantee")
    assert study.note.startswith("No guarantee")


@pytest.mark.parametrize(("method", "every"), [("fedmf", 5), ("ease", 5), ("blend", 1)])
def test_what_a_method_does_by_itself_and_what_is_asked_for_are_one_cell(method, every):
    def place(**options):
        cell = Cell(method=method, data="demo", protocol="honest", seed=0, **options)
        return planned(cell, "row", SplitFacts("split", 100, "order"), Path("cells")).folder

    assert place() == place(evaluate_every=every)
    assert place() != place(evaluate_every=2)
