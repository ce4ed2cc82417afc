"""Local differential privacy from the options of a command."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from fedrec.cli.common import choice
from fedrec.errors import ConfigError
from fedrec.federation.privacy import Privacy


def privacy_of(
    ldp: str | None, clip: float | None, scale: float | None, delta: float | None, reproducible: bool = False
) -> Privacy | None:
    """The settings that ``--ldp`` and the options beside it ask for."""
    given = {"clip": clip, "scale": scale, "delta": delta, "reproducible": reproducible or None}
    if ldp is None:
        for name, value in given.items():
            if value is not None:
                raise ConfigError(f"--ldp-{name} has no effect without --ldp; add --ldp laplace or --ldp gaussian.")
        return None
    settings: dict[str, Any] = {"mechanism": choice("--ldp mechanism", ldp, ("laplace", "gaussian"))}
    settings |= {name: value for name, value in given.items() if value is not None}
    if clip == 0:
        settings["clip"] = None
    try:
        return Privacy(**settings)
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"--ldp-{first['loc'][0]} is {first['input']}: {first['msg']}.") from None
