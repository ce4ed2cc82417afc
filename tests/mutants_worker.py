"""A pytest plugin for ``mutants.py``: what makes thousands of short test runs in forked processes quick.

What all runs need, modules, compiled code, data, is loaded once, before the fork. Nothing collects garbage, which would
write to, and so copy, all the memory that a process shares with the one it was forked from.
"""

import gc
from typing import Any

import pytest

gc.disable()


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
