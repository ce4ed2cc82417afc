"""Federated recommendation: every method, one fast engine, one honest protocol."""

from fedrec.api import load_run, train
from fedrec.data import Interactions, from_frame, load, read_csv
from fedrec.errors import ConfigError, DataError, FedrecError
from fedrec.federation.privacy import Privacy
from fedrec.federation.result import Result
from fedrec.methods import create
from fedrec.protocol import HETEFEDREC, HONEST, PAPER, PFEDREC, Protocol, Split, preset
from fedrec.running.listeners import Listener
from fedrec.running.options import RunOptions
from fedrec.running.run import Run

__all__ = [
    "HETEFEDREC",
    "HONEST",
    "PAPER",
    "PFEDREC",
    "ConfigError",
    "DataError",
    "FedrecError",
    "Interactions",
    "Listener",
    "Privacy",
    "Protocol",
    "Result",
    "Run",
    "RunOptions",
    "Split",
    "create",
    "from_frame",
    "load",
    "load_run",
    "preset",
    "read_csv",
    "train",
]
