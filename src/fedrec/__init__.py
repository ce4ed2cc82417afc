"""Federated recommendation: every method, one fast engine, one honest protocol.

Names are imported when they are first used: torch and all that stands on it take seconds, which nobody should wait for
who asks for a version or for the names of data sets.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedrec.compute.waiting import let_threads_sleep

if TYPE_CHECKING:
    from fedrec.api import load_run, train
    from fedrec.data import Interactions, from_frame, load, read, read_csv
    from fedrec.errors import ConfigError, DataError, FedrecError
    from fedrec.estimator import Recommender
    from fedrec.federation.central_privacy import CentralPrivacy
    from fedrec.federation.privacy import Privacy
    from fedrec.federation.result import Result
    from fedrec.methods import create
    from fedrec.protocol import HETEFEDREC, HONEST, PAPER, PFEDREC, Protocol, Split, preset
    from fedrec.running.listeners import Listener
    from fedrec.running.options import RunOptions
    from fedrec.running.run import Run
    from fedrec.serving.model import Model, load_model
    from fedrec.studies.comparing import compare
    from fedrec.studies.runner import reproduce
    from fedrec.studies.tuning import tune

let_threads_sleep()  # before torch is loaded

_HOMES = {
    "fedrec.api": ("load_run", "train"),
    "fedrec.data": ("Interactions", "from_frame", "load", "read", "read_csv"),
    "fedrec.errors": ("ConfigError", "DataError", "FedrecError"),
    "fedrec.federation.central_privacy": ("CentralPrivacy",),
    "fedrec.estimator": ("Recommender",),
    "fedrec.federation.privacy": ("Privacy",),
    "fedrec.federation.result": ("Result",),
    "fedrec.methods": ("create",),
    "fedrec.protocol": ("HETEFEDREC", "HONEST", "PAPER", "PFEDREC", "Protocol", "Split", "preset"),
    "fedrec.running.listeners": ("Listener",),
    "fedrec.running.options": ("RunOptions",),
    "fedrec.running.run": ("Run",),
    "fedrec.serving.model": ("Model", "load_model"),
    "fedrec.studies.comparing": ("compare",),
    "fedrec.studies.runner": ("reproduce",),
    "fedrec.studies.tuning": ("tune",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "HETEFEDREC",
    "HONEST",
    "PAPER",
    "PFEDREC",
    "CentralPrivacy",
    "ConfigError",
    "DataError",
    "FedrecError",
    "Interactions",
    "Listener",
    "Model",
    "Privacy",
    "Protocol",
    "Recommender",
    "Result",
    "Run",
    "RunOptions",
    "Split",
    "compare",
    "create",
    "from_frame",
    "load",
    "load_model",
    "load_run",
    "preset",
    "read",
    "read_csv",
    "reproduce",
    "train",
    "tune",
]


def __getattr__(name: str) -> Any:
    """Import a public name, or a module of the package, the first time it is used."""
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    else:
        module = f"{__name__}.{name}"
        try:
            value = import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
