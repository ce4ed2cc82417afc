"""A pytest plugin for ``mutants.py``: what makes thousands of short test runs in forked processes quick.

What all runs need, modules, compiled code, data, is loaded once, before the fork. Nothing collects garbage, which would
write to, and so copy, all the memory that a process shares with the one it was forked from.
"""

import gc
import os
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

gc.disable()


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Where mutmut notes which functions a test reaches, every test makes its own fixtures: none has them from another."""
    if os.environ.get("MUTANT_UNDER_TEST") != "stats":
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    runtestprotocol(item, nextitem=None)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_collection_finish(session: pytest.Session) -> None:
    """Only the process that is forked collects and runs nothing."""
    if not session.config.option.collectonly:
        return
    import numpy.ma  # noqa: F401  by numpy.unique
    import scipy.stats  # noqa: F401
    import torch

    import fedrec
    from conftest import load_demo
    from fedrec.federation.simulation import Simulation

    torch.set_num_threads(1)  # OpenMP does not survive a fork once its threads have worked
    split = fedrec.HONEST.split(load_demo(), seed=0)
    methods: list[tuple[str, dict[str, Any]]] = [("fedmf", {}), ("fedmf", {"merge": "elastic"}), ("fedem", {})]
    for name, options in methods:
        Simulation(fedrec.create(name, epochs=1, **options), split.training).round(0)
