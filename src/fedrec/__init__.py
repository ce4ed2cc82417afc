"""Federated recommendation: every method, one fast engine, one honest protocol."""

from fedrec.data import Interactions, from_frame, load, read_csv
from fedrec.errors import ConfigError, DataError, FedrecError
from fedrec.federation.privacy import Privacy
from fedrec.federation.run import Run, train
from fedrec.methods import create as method
from fedrec.protocol import HETEFEDREC, HONEST, PAPER, PFEDREC, Protocol, Split, preset
from fedrec.runs import load_run

__all__ = [
    "HETEFEDREC",
    "HONEST",
    "PAPER",
    "PFEDREC",
    "ConfigError",
    "DataError",
    "FedrecError",
    "Interactions",
    "Privacy",
    "Protocol",
    "Run",
    "Split",
    "from_frame",
    "load",
    "load_run",
    "method",
    "preset",
    "read_csv",
    "train",
]
