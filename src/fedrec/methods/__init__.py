"""Every method by name. Others can add theirs through the entry point group ``fedrec.methods``."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from fedrec.errors import ConfigError, unknown
from fedrec.federation.method import Method
from fedrec.methods.tuned import tuned

BUILT_IN = {
    "random": "fedrec.methods.references:Random",
    "popularity": "fedrec.methods.references:Popularity",
    "local": "fedrec.methods.fedmf:Local",
    "fedmf": "fedrec.methods.fedmf:FedMF",
    "fedem": "fedrec.methods.fedem:FedEM",
}
"""In the order they are listed; imported only when asked for."""


@cache
def _external() -> dict[str, Any]:
    return {point.name: point for point in entry_points(group="fedrec.methods")}


def names() -> list[str]:
    """All known methods."""
    return [*BUILT_IN, *(name for name in _external() if name not in BUILT_IN)]


def find(name: str) -> type[Method]:
    """The class of a method."""
    if name in BUILT_IN:
        module, attribute = BUILT_IN[name].split(":")
        found: type[Method] = getattr(import_module(module), attribute)
        return found
    if name in _external():
        loaded: type[Method] = _external()[name].load()
        return loaded
    raise ConfigError(unknown("method", name, names()))


def create(
    name: str, *, protocol: str = "honest", data: str = "", merge: str | None = None, **options: Any
) -> Method:
    """A method with its tuned configuration for that protocol and data set; ``options`` win over it."""
    kind = find(name)
    known = tuned(name, protocol, data)
    rounds = known.pop("rounds", None)
    for key in options:
        if key not in kind.Config.model_fields:
            raise ConfigError(unknown(f"setting of {name}", key, kind.Config.model_fields))
    method = kind(kind.configure(known | options))
    if rounds is not None:
        method.rounds = int(rounds)
    return method
