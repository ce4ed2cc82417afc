from pathlib import Path

import pytest

from fedrec.studies import criteria
from fedrec.studies.criteria import CRITERIA, measured, regrets, table


def record(test, data="here", seed=0, **validation):
    return {
        "data": data, "seed": seed, "family": "ease", "settings": {}, "test": test,
        "validation": dict.fromkeys(CRITERIA, 0.0) | {name.replace("_", " "): value for name, value in validation.items()},
    }  # fmt: skip


def test_regret_is_what_the_best_setting_has_more_on_test():
    first = [record(0.10, HR=0, **{"NDCG@10": 0.3, "HR@10": 0.1}), record(0.14, **{"NDCG@10": 0.2, "HR@10": 0.2})]
    second = [record(0.20, seed=1, **{"NDCG@10": 0.3, "HR@10": 0.3}), record(0.10, seed=1)]
    other = [record(0.5, data="there", **{"HR@10": 1}), record(0.6, data="there", **{"NDCG@10": 1})]
    found = regrets([*first, *second, *other])
    assert found["NDCG@10"] == {"here": pytest.approx(0.02), "all": pytest.approx(0.04 / 3), "there": 0}
    assert found["HR@10"] == {"here": 0, "all": pytest.approx(0.1 / 3), "there": pytest.approx(0.1)}
    lines = table([*first, *second, *other]).splitlines()
    assert lines[0] == "| criterion on validation | here | there | all |"
    assert lines[2].startswith("| NDCG@10 | 0.02000 | 0.00000 |")


def test_every_setting_is_measured_by_every_criterion(monkeypatch):
    monkeypatch.setattr(criteria, "GRIDS", {"ease": {"lam": [10, 1000]}, "itemknn": {"k": [5]}})
    found = list(measured("demo", 1))
    assert [(r["family"], r["settings"]) for r in found] == [
        ("ease", {"lam": 10}), ("ease", {"lam": 1000}), ("itemknn", {"k": 5}),
    ]  # fmt: skip
    for each in found:
        assert set(each["validation"]) == set(CRITERIA)
        assert (
            0
            < each["validation"]["NDCG@10"]
            <= each["validation"]["NDCG@100"]
            <= each["validation"]["NDCG over all ranks"]
            < 1
        )
        assert 0 < each["test"] < 1


def test_the_table_in_the_docs_is_that_of_the_stored_records():
    import json

    docs = Path(__file__).parents[2] / "docs"
    stored = docs / "results" / "criteria" / "records.json"
    if not stored.exists():
        pytest.skip("nothing is stored")
    assert table(json.loads(stored.read_text())["records"]) in (docs / "tuning.md").read_text()
