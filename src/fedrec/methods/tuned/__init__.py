"""Tuned configurations: chosen on validation only, one file per method.

A file ``<method>.toml`` has a table per protocol with settings found on ML-100K, which data without settings of their own
have, too, and may have sub-tables for data sets. How they were found is written in ``docs/tuning.md``.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any

from fedrec.errors import ConfigError
from fedrec.settings import LARGEST


def tuned(method: str, protocol: str, data: str = "") -> dict[str, Any]:
    """Settings for a protocol, then for a data set under it; empty where nothing was tuned."""
    path = files(__package__) / f"{method}.toml"
    if not path.is_file():
        return {}
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8")).get(protocol, {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the tuned configuration {path} is no TOML: {error}.") from None
    if not (isinstance(table, dict) and isinstance(table.get(data, {}), dict)):
        raise ConfigError(f"the tuned configuration {path} has a value where the settings for {protocol} belong.")
    settings: dict[str, Any] = {key: value for key, value in table.items() if not isinstance(value, dict)}
    settings.update(table.get(data, {}))
    rounds = settings.get("rounds", 0)
    if not isinstance(rounds, int) or isinstance(rounds, bool) or not 0 <= rounds <= LARGEST:
        raise ConfigError(f"the tuned configuration {path} has rounds = {rounds!r}; give a whole number.")
    return settings
