"""A run that evaluates a random sample of its users says so, and how far its means may be off."""

from __future__ import annotations

import numpy as np
import pytest

import fedrec
from federation.peers_at_hand import together
from fedrec.running.selection import drawn
from fedrec.running.training import train as train_with

QUIET = {"progress": False, "device": "cpu", "rounds": 2}


def trained(split, **options):
    return fedrec.train(fedrec.create("fedmf", dim=4, epochs=1), split, **(QUIET | options))


def test_values_are_those_of_a_full_evaluation_for_the_sample_and_missing_for_the_others(demo, honest, tmp_path):
    whole, some = trained(honest), trained(honest, evaluate_users=100, out=tmp_path / "run")
    inside = drawn(500, 100, 0).numpy()
    for part in ("validation", "test"):
        for values in some.per_client[part].full.values():
            assert np.isnan(np.delete(values, inside)).all()
        assert np.isfinite(some.per_client[part].full["hr@10"][inside]).all()
    wanted, found = whole.trainer.scores(drawn(500, 100, 0)), some.trainer.scores(drawn(500, 100, 0))
    if whole.result.selected_round == some.result.selected_round:
        assert np.array_equal(wanted, found)
    assert some.result.sample.users == 100
    assert whole.result.sample is None
    assert fedrec.load_run(tmp_path / "run").result.sample == some.result.sample
    assert sum(group.size for group in some.result.groups["hr@10"]) == 100


def test_margins_cover_the_mean_of_everybody_about_as_often_as_they_say(honest):
    scores = np.random.default_rng(0).random(500)
    hits = 0
    for seed in range(200):
        chosen = drawn(500, 80, seed).numpy()
        known = scores[chosen]
        margin = 1.96 * known.std(ddof=1) * ((1 - 80 / 500) / 80) ** 0.5
        hits += abs(known.mean() - scores.mean()) <= margin
    assert 180 <= hits <= 199


def test_the_margin_of_a_result_is_that(honest):
    run = trained(honest, evaluate_users=80)
    known = run.per_client["test"].full["ndcg@10"]
    known = known[~np.isnan(known)]
    wanted = 1.96 * known.std(ddof=1) * ((1 - 80 / 500) / 80) ** 0.5
    assert run.result.sample.margin.full["ndcg@10"] == pytest.approx(wanted)
    assert trained(honest, evaluate_users=500).result.sample.margin.full["ndcg@10"] == 0


def test_another_sample_is_another_run(small, tmp_path):
    trained(small, evaluate_users=10, out=tmp_path / "run", keep_checkpoints=True)
    with pytest.raises(fedrec.ConfigError, match="evaluate_users 10, not 20"):
        trained(small, evaluate_users=20, out=tmp_path / "run", resume=True)


def test_processes_share_the_sample(small):
    method = fedrec.create("fedmf", dim=4, epochs=1)
    alone = trained(small, evaluate_users=15)
    found = together(2, lambda peers: train_with(method, small, peers=peers, evaluate_users=15, **QUIET))
    assert found[0].result.test.full == pytest.approx(alone.result.test.full)
