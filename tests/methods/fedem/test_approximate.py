"""Approximations of FedEM's two large products: exact at full size, near it at the sizes that are advised, and off by default."""

from __future__ import annotations

import pytest
import torch

import fedrec
from fedrec.methods.fedem import approximate
from fedrec.methods.fedem.similarity import similarities, simplex_weights
from fedrec.parts.tables import mix

N = 60


def tables(seed=0, width=400):
    """Of clients that are far from the common table or near it, in directions of their own."""
    generator = torch.Generator().manual_seed(seed)
    far = torch.linspace(0.2, 1, N)[torch.randperm(N, generator=generator), None, None]
    found = torch.randn(1, width, 4, generator=generator) + far * torch.randn(N, width, 4, generator=generator)
    return [found[:20], found[20:21], found[21:]]


def weights_of(blocks):
    share = torch.rand(N, generator=torch.Generator().manual_seed(1))
    return simplex_weights(similarities(blocks, "table", "squared", snap=None), share / share.sum(), 0.9, "scaled")


def test_a_sketch_of_a_table_s_size_loses_nothing():
    exact = similarities(tables(), "table", "squared", snap=None)
    found = similarities(tables(), "table", "squared", snap=None, sketch=(1600, 3))
    assert torch.allclose(found, exact, atol=1e-5)
    more = similarities(tables(), "table", "squared", snap=None, sketch=(1700, 3))
    assert torch.allclose(more, exact, atol=1e-5)


@pytest.mark.parametrize("size", [64, 500])
def test_distances_are_off_by_no_more_than_projections_are(size):
    exact = 1 / similarities(tables(), "table", "squared", snap=None) - 1
    found = 1 / similarities(tables(), "table", "squared", snap=None, sketch=(size, 3)) - 1
    apart = ~torch.eye(N, dtype=torch.bool)
    ratio = found[apart] / exact[apart]
    assert 0.3 * (2 / size) ** 0.5 < (ratio - 1).std() < 1.3 * (2 / size) ** 0.5
    assert ratio.mean() == pytest.approx(1, abs=0.1)


def test_a_sketch_adds_up_each_number_once_under_a_sign_of_its_own():
    """A table of one number has one place in its sketch, and all places are used alike."""
    blocks = [torch.eye(200).view(200, 200, 1)]
    places = torch.cat(approximate.sketched(blocks, 16, 0)) * 200  # less the mean, which is below 1
    largest = places.abs().max(1).values
    assert bool(((places.abs() > 100).sum(1) == 1).all())
    assert largest.min() > 150
    count = torch.bincount(places.abs().argmax(1), minlength=16)
    assert count.min() >= 200 // 16 - 1
    assert count.max() <= 200 // 16 + 2
    assert 70 < (places.sum(1) > 0).sum() < 130


def test_weights_of_low_rank_are_found_and_their_diagonal_is_free():
    n, generator = 400, torch.Generator().manual_seed(2)
    low = torch.rand(n, 3, generator=generator) @ torch.rand(3, n, generator=generator) / n
    weights = low + torch.diag(torch.rand(n, generator=generator))
    left, right, missed = approximate.low_rank(weights, 3, 0)
    assert missed < 1e-3
    assert (left @ right - low).norm() < 0.01 * low.norm()
    assert approximate.low_rank(weights, 1, 0)[2] > 0.05


def test_personal_means_are_near_the_exact_ones_and_weights_sum_to_one():
    blocks = tables()
    weights = weights_of(blocks)
    exact = mix(weights, blocks)
    found = approximate.mix_low_rank(weights, blocks, 4, 0)
    assert 0 < (found - exact).norm() < 0.01 * (exact - exact.mean(0)).norm()
    ones = [torch.ones_like(block) for block in blocks]
    assert torch.allclose(approximate.mix_low_rank(weights, ones, 4, 0), torch.ones(N, 400, 4), atol=1e-5)


def test_weights_that_no_few_ranks_hold_are_used_as_they_are():
    blocks = tables()
    weights = torch.rand(N, N, generator=torch.Generator().manual_seed(3)).pow(8)
    weights = weights / weights.sum(1, keepdim=True)
    assert approximate.low_rank(weights, 4, 0)[2] > approximate.MOST_MISSED
    assert torch.equal(approximate.mix_low_rank(weights, blocks, 4, 0), mix(weights, blocks))


def test_a_run_takes_them_and_is_near_the_exact_one(honest):
    options = {"variant": "paper", "dim": 8, "epochs": 5}
    runs = [
        fedrec.train(
            fedrec.create("fedem", options | more, protocol="none"), honest, rounds=2, progress=False, threads=1
        )
        for more in ({}, {"sketch": 512}, {"rank": 8}, {"sketch": 512, "rank": 8})
    ]
    everybody = torch.arange(runs[0].split.data.n_users)
    exact, *near = (run.trainer.scores(everybody) for run in runs)
    for scores, run in zip(near, runs[1:], strict=True):
        assert not torch.equal(exact, scores)
        assert run.test["full"] == pytest.approx(runs[0].test["full"], abs=0.02)
