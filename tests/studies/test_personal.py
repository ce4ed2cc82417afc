import json
from pathlib import Path

import numpy as np
import pytest

from fedrec.studies import personal
from fedrec.studies.personal import BASE, SHARED, measured, record, settings, table

OWN = "fedgains, personal 1"


def test_differences_are_paired_over_users_after_the_mean_over_seeds(monkeypatch):
    values = {
        0: {BASE: [0.0, 0.2, np.nan], SHARED: [0.2, 0.2, np.nan], OWN: [0.6, 0.2, np.nan]},
        1: {BASE: [0.2, 0.2, np.nan], SHARED: [0.2, 0.2, np.nan], OWN: [0.6, 0.4, np.nan]},
    }
    monkeypatch.setattr(
        personal,
        "measured",
        lambda data, seed, p: {
            name: {part: np.array(v) for part in ("validation", "test")} for name, v in values[seed].items()
        },
    )
    found = record("here", 2, [1.0])
    base, shared, own = found["rows"]  # in the order of what was measured
    assert (base["test"], shared["test"], own["test"]) == pytest.approx((0.15, 0.2, 0.45))
    assert own[f"test - {SHARED}"][0] == pytest.approx(0.25)
    assert own[f"validation - {BASE}"][0] == pytest.approx(0.3)
    assert shared[f"test - {BASE}"][0] == pytest.approx(0.05)
    assert f"test - {SHARED}" not in shared
    lines = table([found]).splitlines()
    assert lines[4].startswith("| here | fedgains, personal 1 | 0.4500 | +0.3000 (")


def test_what_is_compared_differs_in_how_clients_score_only(monkeypatch):
    assert list(settings([1.0])) == [BASE, OWN, SHARED]
    trained = []
    create = personal.create

    def noted(kind, options, **more):
        method = create(kind, options | ({"gain_rounds": 1, "sample": 50} if kind == "fedgains" else {}), **more)
        trained.append(method)
        return method

    monkeypatch.setattr(personal, "create", noted)
    found = measured("demo", 0, [1.0])
    assert [method.name for method in trained] == ["fedslist", "fedgains", "fedgains"]
    means = {name: np.nanmean(values["test"]) for name, values in found.items()}
    assert len(set(means.values())) == 3
    assert all(value > 0.05 for value in means.values())


def test_the_table_in_the_docs_is_that_of_the_stored_records():
    docs = Path(__file__).parents[2] / "docs"
    stored = json.loads((docs / "results" / "personal" / "records.json").read_text(encoding="utf-8"))["records"]
    assert table(stored) in (docs / "personalisation.md").read_text(encoding="utf-8")
