"""Shared fixtures: the embedded data, its splits, and real data where it can be found."""

from __future__ import annotations

# ruff: noqa: I001
import os
from functools import cache
from pathlib import Path

import fedrec  # before torch, so that its threads sleep while they wait
import numpy as np
import pytest
import torch

from fedrec.data import Interactions

SHARED = Path(__file__).parents[1].parent / "shared" / "data"

torch.set_num_threads(2)


@cache
def load_demo() -> Interactions:
    return fedrec.load("demo")


@pytest.fixture(scope="session")
def demo() -> Interactions:
    return load_demo()


@pytest.fixture(scope="session")
def honest(demo: Interactions) -> fedrec.Split:
    return fedrec.HONEST.split(demo, seed=0)


@pytest.fixture(scope="session")
def paper(demo: Interactions) -> fedrec.Split:
    return fedrec.PAPER.split(demo, seed=0)


@pytest.fixture(scope="session")
def small() -> fedrec.Split:
    """Forty clients, sixty items: enough to train on in no time."""
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(40), rng.integers(10, 25, 40))
    taste = rng.integers(0, 3, 40)
    items = (rng.integers(0, 20, len(users)) + 20 * taste[users]) % 60
    data = Interactions(
        users.astype(np.int32),
        items.astype(np.int32),
        None,
        np.arange(len(users)),
        tuple(range(40)),
        tuple(range(60)),
        "small",
    )
    return fedrec.HONEST.with_options(min_interactions=5, candidates=20).split(data, seed=0)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder with real data sets; tests that need it skip where there is none."""
    folder = Path(os.environ.get("FEDREC_DATA", SHARED))
    if not (folder / "ml-100k" / "ratings.csv.gz").exists():
        pytest.skip("real data not found: set FEDREC_DATA to a folder with ml-100k/ratings.csv.gz")
    return folder
