"""Which runs are a row, what it is called, and what its values are."""

import json
import shutil
import statistics

import pytest

from fedrec.errors import FedrecError
from fedrec.report.sources import read_sections
from fedrec.running.saved import read_result
from report.samples import write_study


def section(*paths):
    (found,) = read_sections(paths)
    return found


def test_equal_settings_are_one_row_over_their_seeds(runs):
    found = section(runs["mf"], runs["popular"], runs["mf-1"])
    assert [row.name for row in found.rows] == ["fedmf", "popularity"]
    values = [read_result(runs[name]).test.sampled["hr@10"] for name in ("mf", "mf-1")]
    assert values[0] != values[1]
    value = found.rows[0].value("HR@10")
    assert value.per_seed == values
    assert value.mean == pytest.approx(statistics.fmean(values))
    assert value.spread == pytest.approx(statistics.stdev(values))
    assert found.rows[1].value("HR@10").spread is None


def test_a_copy_of_a_run_is_no_seed(runs, tmp_path):
    copy = shutil.copytree(runs["mf"], tmp_path / "again")
    found = section(runs["mf"], copy)
    assert [row.name for row in found.rows] == ["fedmf (mf)", "fedmf (again)"]
    assert [row.value("HR@10").spread for row in found.rows] == [None, None]


def test_the_same_folder_given_twice_counts_once(runs):
    (row,) = section(runs["mf"], runs["mf"] / ".." / "mf").rows
    assert len(row.runs) == 1


def test_values_of_clients_that_were_changed_by_hand_are_refused(runs, tmp_path):
    copy = shutil.copytree(runs["mf"], tmp_path / "run")
    content = (copy / "per_client.safetensors").read_bytes()
    (copy / "per_client.safetensors").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(FedrecError, match="is not as it was written"):
        _ = section(copy).rows[0].runs[0].per_client


def test_rows_are_told_apart_by_what_differs(runs):
    found = section(runs["mf"], runs["noisy"], runs["merged-0"], runs["merged-2"])
    names = [row.name for row in found.rows]
    assert names[:2] == ["fedmf", "fedmf, laplace noise 1"]
    assert names[2:] == ["fedem merge=static (rho=0)", "fedem merge=static (rho=1)"]


def test_protocols_stand_apart(runs):
    found = section(runs["mf"], runs["alone"])
    assert [title for title, _ in found.panels] == ["small, honest*", "small, paper* (leaks)"]


def test_a_study_finds_the_runs_of_its_cells(study, runs):
    found = section(study)
    assert [len(row.runs) for row in found.rows] == [2, 1, 1, 1, 1]
    assert found.rows[0].runs[1].result == read_result(runs["mf-1"])
    assert section(study / "study.json").study == found.study


def test_a_study_whose_runs_are_gone_is_still_a_table(study, tmp_path):
    (tmp_path / "study.json").write_text((study / "study.json").read_text())
    found = section(tmp_path)
    assert [len(row.runs) for row in found.rows] == [0] * 5
    assert found.rows[0].value("HR@10").published == 0.5


def test_runs_and_studies_are_sections_with_names_of_their_own(study, runs):
    twin = write_study(runs, study.parent / "twin", note="Another.")
    assert [one.key for one in read_sections([study, runs["mf"], twin])] == ["runs", "tiny", "tiny-2"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "cannot be read as JSON"),
        ("[]", "does not hold a JSON object; run the study again."),
        ('{"format": 9}', "written by a newer version"),
        ('{"format": 1, "kind": "study"}', "is not a complete result of a study"),
    ],
)
def test_a_damaged_study_is_one_sentence(tmp_path, content, said):
    (tmp_path / "study.json").write_text(content)
    with pytest.raises(FedrecError, match=said.replace("(", r"\(")):
        read_sections([tmp_path])


def test_what_is_no_run_is_said(tmp_path):
    with pytest.raises(FedrecError, match="holds no finished run"):
        read_sections([tmp_path])
    with pytest.raises(FedrecError, match="does not exist"):
        read_sections([tmp_path / "nothing"])


def test_a_damaged_log_of_rounds_is_said(runs, tmp_path):
    copy = shutil.copytree(runs["mf"], tmp_path / "run")
    for damage in ("{", json.dumps({"round": "x"})):
        (copy / "metrics.jsonl").write_text(damage)
        with pytest.raises(FedrecError, match=r"metrics\.jsonl is damaged"):
            _ = section(copy).rows[0].runs[0].lines
    (copy / "metrics.jsonl").unlink()
    assert section(copy).rows[0].runs[0].lines == []
