"""Approximations of FedEM's two large products: exact at full size, near it at the sizes that are advised, and off by default."""

from __future__ import annotations

import pytest
import torch

import fedrec
from fedrec.methods.fedem import similarity as alike
from fedrec.parts.tables import mix


def tables(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(n, 30, 4, generator=generator) for n in (20, 15)]


def test_means_of_all_neighbours_are_exact_and_weights_always_sum_to_one():
    weights = torch.rand(35, 35, generator=torch.Generator().manual_seed(1)).softmax(1)
    assert torch.allclose(alike.mix_near(weights, tables(), 35), mix(weights, tables()), atol=1e-6)
    ones = [torch.ones(20, 30, 4), torch.ones(15, 30, 4)]
    for k in (1, 5):
        assert torch.allclose(alike.mix_near(weights, ones, k), torch.ones(35, 30, 4), atol=1e-5)


def test_what_one_likes_most_is_kept():
    weights = torch.full((35, 35), 0.5 / 34).fill_diagonal_(0.5)
    near = (alike.mix_near(weights, tables(), 2) - mix(weights, tables())).norm()
    common = (weights.mean(0) @ torch.cat(tables()).flatten(1) - mix(weights, tables()).flatten(1)).norm()
    assert near < 0.2 * common


@pytest.mark.parametrize("size", [64, 512])
def test_distances_are_off_by_no_more_than_projections_are(size):
    exact = 1 / alike.similarities(tables(), "table", "squared", snap=None) - 1
    found = 1 / alike.similarities(tables(), "table", "squared", snap=None, sketch=(size, 3)) - 1
    apart = ~torch.eye(35, dtype=torch.bool)
    ratio = found[apart] / exact[apart]
    assert (ratio - 1).std() < 1.5 * (2 / size) ** 0.5
    assert ratio.mean() == pytest.approx(1, abs=0.1)


def test_a_run_takes_them_and_is_near_the_exact_one(honest):
    options = {"variant": "paper", "dim": 4, "epochs": 2}
    runs = [
        fedrec.train(fedrec.create("fedem", options | more, protocol="none"), honest, rounds=3, progress=False)
        for more in ({}, {"sketch": 512, "neighbours": 64})
    ]
    exact, near = runs
    assert not torch.equal(exact.trainer.scores(torch.arange(9)), near.trainer.scores(torch.arange(9)))
    assert near.test["full"] == pytest.approx(exact.test["full"], abs=0.02)
