"""Every method by name. Others can add theirs through the entry point group ``fedrec.methods``, or name a file."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from fedrec.errors import ConfigError, brief, unknown
from fedrec.federation.recommender import Recommender
from fedrec.methods.own_file import from_file, is_own_file
from fedrec.methods.tuned import tuned
from fedrec.parts.merged_method import PluginSettings, merged
from fedrec.parts.merging import check_merge

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
    "fedslist": "fedrec.methods.fedslist:FedSlist",
    "fedgains": "fedrec.methods.fedgains:FedGains",
    "fedsasrec": "fedrec.methods.fedsasrec:FedSasrec",
    "mf": "fedrec.methods.central.mf:MF",
    "ncf": "fedrec.methods.central.ncf:NCF",
    "lightgcn": "fedrec.methods.central.lightgcn:LightGCN",
    "itemknn": "fedrec.methods.central.itemknn:ItemKNN",
    "ease": "fedrec.methods.central.ease:EASE",
    "slist": "fedrec.methods.central.slist:Slist",
    "sasrec": "fedrec.methods.central.sasrec:Sasrec",
    "ials": "fedrec.methods.central.ials:IALS",
    "colr": "fedrec.methods.colr:CoLR",
    "fedcia": "fedrec.methods.fedcia:FedCIA",
    "blend": "fedrec.methods.blend:Blend",
}
"""In the order they are listed; imported only when asked for."""


@cache
def _external() -> dict[str, Any]:
    return {point.name: point for point in entry_points(group="fedrec.methods")}


def names() -> list[str]:
    """All known methods."""
    return [*BUILT_IN, *(name for name in _external() if name not in BUILT_IN)]


def find(name: str) -> type[Recommender]:
    """The class of a method: an installed one by its name, or one in a file, as in ``./mymethod.py:MyMethod``."""
    if not is_own_file(name):
        return installed(name)
    kind = from_file(name)
    if kind.name in names():
        raise ConfigError(
            f"the method in {name} is called '{kind.name}', as one that is installed; give it another name."
        )
    return kind


def installed(name: str) -> type[Recommender]:
    """The class of a method of this package, or of another one that is installed."""
    if name in BUILT_IN:
        module, attribute = BUILT_IN[name].split(":")
        found: type[Recommender] = getattr(import_module(module), attribute)
        return found
    if name in _external():
        try:
            loaded: type[Recommender] = _external()[name].load()
        except Exception as error:
            raise ConfigError(f"the method '{name}' of another package cannot be loaded: {error}.") from error
        return loaded
    raise ConfigError(unknown("method", name, names()))


def create(
    name: str,
    settings: Mapping[str, Any] | None = None,
    *,
    protocol: str = "honest",
    data: str = "",
    merge: str | None = None,
    **options: Any,
) -> Recommender:
    """A method with its tuned configuration for that protocol and data set; settings, also as keywords, win over it.

    ``merge`` says how clients merge the item table they download with their own, for any method that downloads one.
    """
    options = dict(settings or {}) | options
    protocol = protocol.partition(":")[0]  # settings are tuned for a preset, whatever of it is changed
    if "merge" in options:
        merge = str(options.pop("merge"))
    kind = find(name)
    name = kind.name if is_own_file(name) else name
    if merge is not None:
        check_merge(merge)
        options["merge"] = merge
        kind = kind if "merge" in kind.Config.model_fields else merged(kind)
    for key in PluginSettings.model_fields.keys() & options.keys() - kind.Config.model_fields.keys():
        raise ConfigError(f"{key} has no effect on {name} unless clients merge; add merge=elastic or leave it out.")
    known = {} if any(key in options for key in kind.defining) else tuned(name, protocol, data)
    rounds = known.pop("rounds", None)
    for key in options:
        if key not in kind.Config.model_fields:
            raise ConfigError(unknown(f"setting of {name}", key, kind.Config.model_fields))
    method = kind(kind.configure(kind.completed(known | options, protocol, data)))
    if rounds is not None:
        method.rounds = rounds
    return method


def rebuild(name: str, config: dict[str, Any], own: type[Recommender] | None = None) -> Recommender:
    """The method of a saved run from its name and described config; names of files are none, for they would be run.

    ``own`` is the class of a method that is not installed.
    """
    base, merges, _ = name.partition("+")
    if own is not None and own.name != base:
        raise ConfigError(f"this run was trained with '{base}', not with '{own.name}'; give the class of '{base}'.")
    if own is None and base not in names():
        raise ConfigError(
            f"unknown method '{brief(base)}'; it is not installed here, and if it is your own, give its file and class (method), "
            "as in ./mymethod.py:MyMethod."
        )
    kind = own or installed(base)
    kind = merged(kind) if merges else kind
    return kind(kind.configure(config))
