"""Shared fixtures: the embedded data, its splits, and real data where it can be found."""

from __future__ import annotations

# ruff: noqa: I001
import os
import sys
from contextlib import suppress
from functools import cache

import fedrec  # before torch, so that its threads sleep while they wait
import numpy as np
import pytest
import torch

from fedrec.data import Interactions
from fedrec.data.catalogue import catalogue
from fedrec.data.loading import on_this_machine
from fedrec.errors import DataError

if "PYTEST_XDIST_WORKER" in os.environ:  # beside other workers one thread each, in processes that tests start, too
    torch.set_num_threads(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
else:
    torch.set_num_threads(2)


with suppress(ImportError):  # a part of dp_accounting; its handler closes the stream it found, which would be pytest's
    from absl import logging as absl_logging

    absl_logging.get_absl_handler().python_handler.stream = sys.__stderr__


FIRST = ("deploy/test_processes.py", "studies/test_reproduce.py", "methods/test_merged.py")
"""Files of tests that take longest: begun last, one process would work on while the others have nothing left to do."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.split("::")[0].endswith(FIRST))


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


@pytest.fixture
def other_threads() -> int:
    """A number of threads that is not the one tests have, be it one or two."""
    return 3 - torch.get_num_threads()


@pytest.fixture(scope="session")
def _fetched():
    """Real data sets of this session by name, or why there is none."""
    return {}


@pytest.fixture
def real_data(request, _fetched):
    """Gives a real data set by name, from the folder in FEDREC_DATA or the cache.

    Where it is in neither, quick tests skip; slow ones fetch it, and fail with the reason if they cannot.
    """

    def get(name):
        if (
            name not in _fetched
            and on_this_machine(catalogue[name]) is None
            and not request.node.get_closest_marker("slow")
        ):
            pytest.skip(f"{name} is not on this machine; `make test-slow` and `fedrec data get {name}` fetch it")
        if name not in _fetched:
            try:
                _fetched[name] = fedrec.load(name)
            except DataError as error:
                _fetched[name] = str(error)
        if isinstance(_fetched[name], str):
            pytest.fail(_fetched[name], pytrace=False)
        return _fetched[name]

    return get
