import numpy as np
import pytest
import torch

import fedrec
from fedrec.federation.simulation import Simulation
from fedrec.methods.references import Popularity, Random
from fedrec.testing import MethodSuite


class TestPopularity(MethodSuite):
    method = Popularity
    rounds = 1
    floor = 0.28
    deterministic = True


class TestRandom(MethodSuite):
    method = Random
    rounds = 0
    at_chance = "random scores"


def test_popularity_counts_training_rows_only(honest):
    simulation = Simulation(Popularity(), honest.training)
    simulation.round(0)
    expected = np.bincount(honest.training.positives.values, minlength=honest.data.n_items)
    assert simulation.server["counts"][:, 0].tolist() == expected.tolist()
    simulation.round(1)
    assert simulation.server["counts"][:, 0].tolist() == expected.tolist(), "a second round must not count twice"


def test_random_is_at_chance(honest):
    run = fedrec.train(Random(), honest, device="cpu", progress=False)
    assert run.test["sampled"]["hr@10"] == pytest.approx(0.1, abs=0.04)
    scores = run.trainer.scores(torch.arange(50))
    assert 0.4 < scores.mean() < 0.6


@pytest.mark.parametrize(
    ("data", "options", "hr", "ndcg"),
    [
        ("ml-100k", {"ties": "first"}, 0.414, 0.226),
        ("ml-100k", {}, 0.401, 0.222),
        ("filmtrust", {"untimed": "item", "duplicates": "keep"}, 0.670, 0.533),
        ("filmtrust", {"untimed": "random"}, 0.915, 0.832),
        ("lastfm-2k", {"ties": "first"}, 0.585, 0.380),
    ],
)
def test_popularity_reproduces_known_values(real_data, data, options, hr, ndcg):
    split = fedrec.HONEST.with_options(**options).split(real_data(data), seed=0)
    found = fedrec.train(Popularity(), split, device="cpu", progress=False).test["sampled"]
    assert found["hr@10"] == pytest.approx(hr, abs=0.025)
    assert found["ndcg@10"] == pytest.approx(ndcg, abs=0.02)
