"""The script behind docs/personalisation.md, as far as it is quick."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

import fedrec
from fedrec.testing import few


@pytest.fixture(scope="module")
def script():
    path = Path(__file__).parents[1] / "benchmarks" / "personal_models.py"
    spec = importlib.util.spec_from_file_location("personal_models", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_one_cluster_is_one_model_for_all_with_more_of_everything(script, capsys):
    found = script.clusters(few(0, 40), [(1, 0.0, 300.0), (2, 3.0, 300.0)], rounds=2)
    one, other = found.values["1 clusters, kappa 0, lam 300"], found.values["2 clusters, kappa 3, lam 300"]
    base = found.values["fedslist"]
    assert np.array_equal(one["test"], base["test"])
    assert not np.array_equal(other["test"], base["test"])
    found.compared("fedslist")
    assert "test, 1 clusters, kappa 0, lam 300 - fedslist: +0.0000" in capsys.readouterr().out


def test_what_is_held_back_is_the_newest_third_and_ten_items_at_most(script):
    split = few(0, 40)
    before = script.without_held(split.training)
    for client in range(40):
        own, left = split.training.positives[client], before.positives[client]
        assert len(own) - len(left) == min(10, len(own) // 3)
        assert np.array_equal(own[: len(left)], left)


def test_warm_models_begin_where_the_shared_one_is(script):
    found = script.warm(few(0, 40), "demo", rounds=0, shared_rounds=3)
    shared = found.values.pop("fedmf")
    assert len(found.values) == 7
    for values in found.values.values():
        assert values["test"] == pytest.approx(shared["test"], abs=1e-6)


def test_adapters_are_fitted_on_the_items_that_are_held_back(script, monkeypatch):
    seen = []
    split = few(0, 40)
    monkeypatch.setattr(script.MeanFedEM, "_adapter_phase", lambda self, *args: seen.append(args[-1]))
    method = script.WarmFedEM(agg="mean", dim=4, epochs=1)
    method.first_table, method.first_users, method.held = torch.zeros(split.data.n_items, 4), torch.zeros(40, 4), True
    trainer = method.trainer(split.training, fedrec.federation.trainer.Setup(0))
    trainer.round(0)
    assert not seen  # nothing to merge with yet
    trainer.round(1)
    for samples in seen:
        for row, client in enumerate(samples.clients.tolist()):
            own = split.training.positives[client]
            count = int(samples.counts[row])
            items = samples.items[row, :count][samples.labels[row, :count] == 1]
            assert items.tolist() == own[len(own) - min(10, len(own) // 3) :].tolist()
