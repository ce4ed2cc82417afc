"""A configuration file for ``fedrec train``: settings of the method and options of the run, in TOML."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pydantic import Field
from typer import Context

from fedrec.errors import ConfigError, unknown
from fedrec.federation.config import validated
from fedrec.running.options import RunOptions
from fedrec.settings import Settings

FLAGS = {"progress": "quiet", "privacy": "ldp"}
"""Options of a run that have another name on the command line."""


class ConfigFile(Settings):
    """What may stand in the file; whatever is said on the command line wins over it."""

    data: str | None = None
    """Data set, or path of a file."""
    protocol: str | None = None
    """Name of a protocol."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings of the method."""
    run: dict[str, Any] = Field(default_factory=dict)
    """Options of the run."""


def read_config(path: Path) -> ConfigFile:
    """The file, checked as far as that goes without the method."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"the configuration {path} cannot be read ({error.strerror}); check its path.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the configuration {path} is no TOML: {error}.") from None
    found = validated(ConfigFile, f"the configuration {path}", values)
    for name in found.run:
        if name not in RunOptions.model_fields:
            raise ConfigError(unknown(f"option of a run in {path}", name, RunOptions.model_fields))
    return found


def given(context: Context, name: str) -> bool:
    """Whether an option was said on the command line."""
    source = context.get_parameter_source(FLAGS.get(name, name))
    return source is not None and source.name == "COMMANDLINE"
