"""Tuned configurations: chosen on validation only, one file per method.

A file ``<method>.toml`` has a table per protocol with the best settings found on ML-100K, and may have sub-tables for
other data sets. How they were found is written in ``docs/tuning.md``.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any


def tuned(method: str, protocol: str, data: str = "") -> dict[str, Any]:
    """Settings for a protocol, then for a data set under it; empty where nothing was tuned."""
    path = files(__package__) / f"{method}.toml"
    if not path.is_file():
        return {}
    table = tomllib.loads(path.read_text(encoding="utf-8")).get(protocol, {})
    settings: dict[str, Any] = {key: value for key, value in table.items() if not isinstance(value, dict)}
    settings.update(table.get(data, {}))
    return settings
