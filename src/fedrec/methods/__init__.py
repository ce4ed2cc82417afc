"""Every method by name. Others can add theirs through the entry point group ``fedrec.methods``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from pydantic import ValidationError

from fedrec.errors import ConfigError, unknown
from fedrec.federation.method import Method
from fedrec.methods.tuned import tuned
from fedrec.parts.merging import check_merge
from fedrec.parts.plugin import Merged, MergeSettings

BUILT_IN = {
    "random": "fedrec.methods.references:Random",
    "popularity": "fedrec.methods.references:Popularity",
    "local": "fedrec.methods.fedmf:Local",
    "fedmf": "fedrec.methods.fedmf:FedMF",
    "fedem": "fedrec.methods.fedem:FedEM",
    "pfedrec": "fedrec.methods.pfedrec:PFedRec",
    "gpfedrec": "fedrec.methods.gpfedrec:GPFedRec",
    "fedrap": "fedrec.methods.fedrap:FedRAP",
    "fedncf": "fedrec.methods.fedncf:FedNCF",
    "fedfast": "fedrec.methods.fedfast:FedFast",
    "hetefedrec": "fedrec.methods.hetefedrec:HeteFedRec",
    "fedgram": "fedrec.methods.fedgram:FedGram",
    "mf": "fedrec.methods.central.mf:MF",
    "ncf": "fedrec.methods.central.ncf:NCF",
    "lightgcn": "fedrec.methods.central.lightgcn:LightGCN",
    "itemknn": "fedrec.methods.central.itemknn:ItemKNN",
    "ease": "fedrec.methods.central.ease:EASE",
    "ials": "fedrec.methods.central.ials:IALS",
    "colr": "fedrec.methods.colr:CoLR",
    "fedcia": "fedrec.methods.fedcia:FedCIA",
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


def _merge_settings(mode: str | None, options: dict[str, Any]) -> MergeSettings | None:
    """Settings of the merging plug-in: the mode, and ``merge.<setting>`` among the options."""
    chosen = {key: options.pop(key) for key in list(options) if key.startswith("merge.")}
    if mode is None:
        if chosen:
            raise ConfigError(
                f"{next(iter(chosen))} has no effect without merging; choose a merge mode, such as merge=elastic."
            )
        return None
    check_merge(mode, 0.5)
    values = {"mode": mode} | {key.removeprefix("merge."): value for key, value in chosen.items()}
    for key in values:
        if key not in MergeSettings.model_fields:
            raise ConfigError(unknown("merge setting", key, MergeSettings.model_fields))
    try:
        return MergeSettings(**values)
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"merge setting {first['loc'][0]}: {first['msg']}.") from None


def create(
    name: str,
    settings: Mapping[str, Any] | None = None,
    *,
    protocol: str = "honest",
    data: str = "",
    merge: str | None = None,
    **options: Any,
) -> Method:
    """A method with its tuned configuration for that protocol and data set; settings, also as keywords, win over it."""
    options = dict(settings or {}) | options
    kind = find(name)
    own_merge = "merge" in kind.Config.model_fields
    if own_merge and merge is not None:
        options["merge"] = merge
    merging = None if own_merge else _merge_settings(merge, options)
    known = {} if any(key in options for key in kind.defining) else tuned(name, protocol, data)
    rounds = known.pop("rounds", None)
    for key in options:
        if key not in kind.Config.model_fields:
            raise ConfigError(unknown(f"setting of {name}", key, kind.Config.model_fields))
    method: Method = kind(kind.configure(known | options))
    if rounds is not None:
        method.rounds = int(rounds)
    return method if merging is None else Merged(method, merging)


def rebuild(name: str, config: dict[str, Any]) -> Method:
    """The method of a saved run from its name and described config."""
    base, sign, _ = name.partition("+")
    kind = find(base)
    if not sign:
        return kind(kind.configure(config))
    own = {key: value for key, value in config.items() if key != "merge"}
    return Merged(kind(kind.configure(own)), MergeSettings(**config["merge"]))
