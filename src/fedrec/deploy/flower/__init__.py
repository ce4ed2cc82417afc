"""Flower as the transport: its link between server and sites, TLS, node keys, heartbeats and queues of messages.

Everything that Flower would send elsewhere is off, always: telemetry, update checks, installation of dependencies. No
code is ever shipped: sites and the server run what is installed, and exchange messages (``fedrec.deploy.message``).
"""

from __future__ import annotations

import os
from pathlib import Path

SWITCHES = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
os.environ.update(SWITCHES)  # before Flower is imported, which reads them


def home(folder: Path) -> None:
    """Whatever Flower writes goes there."""
    os.environ["FLWR_HOME"] = str(folder.resolve() / ".flwr")
