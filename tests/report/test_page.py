"""The page as text: what it says, that names are never markup, that it is the same each time and asks for nothing."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from fedrec.errors import ConfigError
from fedrec.report import page as pages
from fedrec.report.figures import figures
from fedrec.report.sources import read_sections
from fedrec.studies.result import TestRecord
from report.samples import write_study

pytest.importorskip("plotly")

EVIL = "<script>alert('x')</script>\"'&</title>"


def html(*paths):
    return pages.page([(section, figures(section, models=False)) for section in read_sections(paths)])


class Outline(HTMLParser):
    """Tags and texts, scripts left out."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.scripts, self._inside = [], [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._inside = ""

    def handle_data(self, data):
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style" and data.strip():
            self.texts.append(data.strip())


def rows_of(text):
    """Cells of the first table, by the name of the row."""
    table = re.search(r"<table>(.*?)</table>", text, re.S)[1]
    found = {}
    for name, cells in re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', table):
        found[name.replace("<wbr>", "")] = re.findall(r"<td[^>]*>(.*?)</td>", cells)
    return found


def test_equal_input_gives_an_equal_page(runs):
    first, second = (
        pages.page([(section, figures(section)) for section in read_sections([runs["mf"], runs["adapted"]])])
        for _ in "12"
    )
    assert first == second


def test_the_table_has_ours_published_and_the_difference(study):
    (section,) = read_sections([study])
    ours = section.rows[0].value("HR@10")
    cells = rows_of(html(study))["MF"]
    assert cells[:4] == [
        f"{ours.mean:.4f}",
        f"± {ours.spread:.4f}",
        "0.5000",
        f"{ours.mean - 0.5:+.4f}".replace("-", "−"),
    ]
    assert cells[4] == "2 of 3"
    assert rows_of(html(study))["Merged, rho=0"][2:4] == ["–", "–"]


def test_rows_of_one_value_are_said_to_be_level_and_nothing_is_minus_zero(study, tmp_path):
    content = json.loads((study / "study.json").read_text())
    for row in content["rows"]:
        for value in row["values"]:
            value["mean"], value["difference"] = 0.92681, value["published"] and -0.00001
    (tmp_path / "study.json").write_text(json.dumps(content))
    said = html(tmp_path / "study.json")
    assert re.search(r"</strong> and <strong>[^<]*</strong> are best by HR@10 with 0.9268 each", said)
    assert "+0.0000" in said
    assert "−0.0000" not in said


def test_missing_runs_are_named(study):
    text = html(study)
    assert "1 of 7 runs have no result" in text
    assert "MF, small, honest*, seed 2: no room" in text


def test_leaking_rows_are_marked_and_explained(runs, study):
    for text in (html(runs["mf"], runs["alone"]), html(study)):
        assert re.search(r'rowgroup"[^>]*><span>small, paper\*<span class="leak">leaks</span>', text)
        assert "are not to be compared with the others" in text
        assert "training negatives exclude each client" in text
    assert "leaks</span>" not in html(runs["mf"])


def test_names_are_never_markup(runs, tmp_path):
    folder = runs["mf"].parents[1] / "evil"
    if not folder.exists():
        write_study(runs, folder)
    content = json.loads((folder / "study.json").read_text())
    content |= {"title": EVIL, "note": EVIL, "paper": EVIL, "columns": [EVIL + "@10"], "data": [EVIL]}
    for row in content["rows"]:
        row |= {
            "label": EVIL + row["label"],
            "data": EVIL,
            "method": EVIL,
            "protocol": row["protocol"] + EVIL,
            "privacy": EVIL,
        }
        row["settings"] = {EVIL: EVIL}
        row["values"][0]["column"] = EVIL + "@10"
        row["cells"][0] |= {"config_hash": EVIL, "why": EVIL}
    (folder / "study.json").write_text(json.dumps(content))
    text = html(folder)
    found = Outline(text)
    assert EVIL in found.texts
    assert len(found.scripts) == len(Outline(html(runs["mf"])).scripts) == 3
    assert [tag for tag, _ in found.tags].count("title") == 1
    assert not any("alert" in script and n != 0 for n, script in enumerate(found.scripts))
    known = json.loads(found.scripts[0])
    assert any(EVIL in one["name"] for figure in known["all"] for one in figure["legend"])


def test_the_page_allows_its_own_scripts_and_no_request(study):
    found = Outline(html(study))
    (policy,) = [attrs["content"] for tag, attrs in found.tags if attrs.get("http-equiv") == "Content-Security-Policy"]
    digest = base64.b64encode(hashlib.sha256(found.scripts[-1].encode()).digest()).decode()
    assert f"'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe-inline" not in policy.split("script-src")[1]
    links = [
        value
        for tag, attrs in found.tags
        for name, value in attrs.items()
        if name in ("src", "href", "srcset", "action")
    ]
    assert all(link.startswith("#") or link == "data:," for link in links)
    assert "url(" not in html(study).split("</style>")[0]


def test_links_lead_somewhere(study, runs):
    for text in (html(study), html(study, runs["mf"])):
        found = Outline(text)
        ids = [attrs["id"] for _, attrs in found.tags if "id" in attrs]
        assert len(set(ids)) == len(ids)
        wanted = [attrs["href"][1:] for tag, attrs in found.tags if tag == "a"]
        assert wanted
        assert set(wanted) <= set(ids)


def test_headings_captions_and_words_for_figures(study):
    found = Outline(html(study))
    tags = [tag for tag, _ in found.tags]
    assert tags.count("h1") == 1
    assert tags.count("table") == tags.count("caption")
    plots = [attrs for _, attrs in found.tags if attrs.get("class") == "plot"]
    assert plots
    assert all(attrs["role"] == "img" and len(attrs["aria-label"]) > 20 for attrs in plots)
    levels = [int(tag[1]) for tag in tags if re.fullmatch("h[1-6]", tag)]
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_paired_tests_are_a_table(runs):
    folder = runs["mf"].parents[1] / "compared"
    test = TestRecord(
        data="small", protocol="honest*", metric="ndcg@10", label="MF", reference="Merged, rho=0", users=40, difference=0.0123,
        low=-0.01, high=0.03, bootstrap_p=0.02, bootstrap_holm=0.04, wilcoxon_p=0.00001, wilcoxon_holm=0.00002,
    )  # fmt: skip
    other = test.model_copy(update={"data": "elsewhere", "reference": "Another"})
    text = html(write_study(runs, folder, kind="comparison", tests=[test, other]))
    for words in (
        "Paired tests against the reference of each data set",
        "Another",
        "+0.0123",
        "-0.0100 to +0.0300",
        "0.0400",
        "&lt; 0.0001",
    ):
        assert words in text


def test_the_size_is_that_of_the_library_and_little_more(study, runs):
    assert len(html(study, *runs.values())) < 2_400_000


def test_hashes_and_settings_are_there(runs):
    text = html(runs["mf"])
    (section,) = read_sections([runs["mf"]])
    result = section.rows[0].runs[0].result
    for words in (result.config_hash, result.split_hash, f"torch {result.versions['torch']}", "<dt>dim</dt><dd>4</dd>"):
        assert words in text


def test_without_plotly_it_says_what_to_install(runs, monkeypatch):
    def nothing(name):
        raise ModuleNotFoundError(name)

    pages._plotly.cache_clear()
    own = pages.files
    monkeypatch.setattr(pages, "files", lambda name: nothing(name) if name == "plotly" else own(name))
    with pytest.raises(ConfigError, match=r"pip install 'fedrec\[report\]'"):
        html(runs["mf"])
