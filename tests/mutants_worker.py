"""A pytest plugin for ``mutants.py``: what makes thousands of short test runs in forked processes quick.

What all runs need, modules, compiled code, data, is loaded once, before the fork. Nothing collects garbage, which would
write to, and so copy, all the memory that a process shares with the one it was forked from.
"""

import gc
import os
from pathlib import Path
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
    """See that the copy is what is tested; and get the process ready that is forked, which collects and runs nothing."""
    import fedrec

    if not Path(fedrec.__file__).is_relative_to(Path.cwd() / "src"):
        raise pytest.UsageError(f"the tests would run against {fedrec.__file__}, which is not the copy that is changed")
    if not session.config.option.collectonly:
        return
    import numpy.ma  # noqa: F401  by numpy.unique
    import scipy.stats  # noqa: F401
    import torch

    from conftest import load_demo
    from fedrec.federation.simulation import Simulation

    torch.set_num_threads(1)  # OpenMP does not survive a fork once its threads have worked
    split = fedrec.HONEST.split(load_demo(), seed=0)
    if not any("federation" in item.nodeid or "parts" in item.nodeid for item in session.items):
        return  # others do not train
    methods: list[tuple[str, dict[str, Any]]] = [("fedmf", {}), ("fedmf", {"merge": "elastic"}), ("fedem", {})]
    for name, options in methods:
        Simulation(fedrec.create(name, epochs=1, **options), split.training).round(0)
