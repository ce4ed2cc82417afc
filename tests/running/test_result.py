"""The result as an object, as JSON, and as its schema says."""

import copy
import json
import math
import shutil
from pathlib import Path

import pytest
from pydantic import ValidationError

import fedrec
from fedrec.cli.tables import print_results
from fedrec.errors import FedrecError
from fedrec.federation.result import Metrics, Result, ResultTable, metric_title, result_schema
from fedrec.methods.fedmf import FedMF
from fedrec.running.saved import read_result
from json_schema import violations
from run_folders import change

SCHEMA = Path(__file__).parents[2] / "docs" / "result.schema.json"
QUIET = {"progress": False, "device": "cpu"}


@pytest.fixture(scope="module")
def run(small, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "run"
    settings = {"epochs": 1, "participation": 0.5}
    privacy = fedrec.Privacy(clip=0.1, scale=1.0)
    return fedrec.train(FedMF(**settings), small, rounds=2, out=folder, privacy=privacy, **QUIET), folder


def test_the_committed_schema_is_the_models():
    assert SCHEMA.read_text() == result_schema(), "run `make schema`"


def test_real_results_are_as_the_schema_says(run, demo):
    schema = json.loads(SCHEMA.read_text())
    assert violations(json.loads((run[1] / "result.json").read_text()), schema) == []
    for name, split in (("hetefedrec", fedrec.HETEFEDREC.split(demo)), ("random", fedrec.PAPER.split(demo))):
        result = fedrec.train(name, split, rounds=1, **QUIET).result
        assert violations(json.loads(json.dumps(result.model_dump(mode="json"))), schema) == []


@pytest.mark.parametrize("damage", ["missing", "unknown", "text", "metric"])
def test_the_schema_refuses_what_is_no_result(run, damage):
    broken = copy.deepcopy(run[0].result.model_dump(mode="json"))
    if damage == "missing":
        del broken["tables"]
    elif damage == "unknown":
        broken["bytes"]["sideways"] = 1
    elif damage == "text":
        broken["rounds"] = "two"
    else:
        broken["test"]["full"]["hr@10"] = "high"
    assert len(violations(broken, json.loads(SCHEMA.read_text()))) == 1


def test_what_is_read_back_is_what_was_written(run):
    assert read_result(run[1]) == run[0].result
    assert fedrec.load_run(run[1]).result == run[0].result


def test_a_result_with_an_unknown_key_is_refused(run, tmp_path):
    plain = run[0].result.model_dump(mode="json")
    with pytest.raises(ValidationError, match="sideways"):
        Result(**plain, sideways=1)
    shutil.copytree(run[1], tmp_path / "run")
    change(tmp_path / "run", "result.json", lambda result: result | {"sideways": 1})
    with pytest.raises(FedrecError, match=r"not a complete result \(sideways missing or wrong\); train again"):
        read_result(tmp_path / "run")


def test_a_result_of_before_there_was_a_key_is_read_with_its_default(run, tmp_path):
    shutil.copytree(run[1], tmp_path / "run")
    change(
        tmp_path / "run",
        "result.json",
        lambda result: {k: v for k, v in result.items() if k not in ("processes", "sample", "views")},
    )
    assert read_result(tmp_path / "run") == run[0].result


def test_privacy_and_phases_are_part_of_it(run):
    result = run[0].result
    assert result.privacy.epsilon_per_round == pytest.approx(0.2)
    assert {"sampling", "training", "aggregation", "evaluation"} < set(result.seconds.model_dump())
    assert result.validation["hr@10"] == result.model_dump()["validation"]["hr@10"]


def test_a_mean_over_nobody_is_null_in_json():
    metrics = Metrics(full={"hr@10": math.nan})
    assert metrics.model_dump(mode="json")["full"] == {"hr@10": None}
    assert math.isnan(Metrics(**metrics.model_dump(mode="json")).full["hr@10"])


class Tabled(FedMF):
    """A method that wants a table printed."""

    name = "tabled"

    def tables(self, result):
        return [ResultTable(title=f"{result.label}: [who]", columns=["client", "share"], rows=[["a[/b]", "0.5"]])]


def test_any_method_can_have_a_table_printed(small, capsys):
    result = fedrec.train(Tabled(epochs=1), small, rounds=1, **QUIET).result
    assert result.tables[0].rows == [["a[/b]", "0.5"]]
    print_results([result])
    shown = capsys.readouterr().out
    assert "tabled: [who]" in shown
    assert "a[/b]" in shown


def test_titles_of_metrics():
    assert [metric_title(name) for name in ("hr@10", "ndcg@20", "recall@20")] == ["HR@10", "NDCG@20", "Recall@20"]
