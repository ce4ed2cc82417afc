"""What the shell offers when Tab is pressed: methods, data sets, protocols, devices and names of settings.

Where nothing here fits, the shell offers files. ``fedrec --install-completion`` sets it up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from typer import Context

from fedrec.data import catalogue
from fedrec.errors import FedrecError
from fedrec.settings import Settings

Offers = list[tuple[str, str]]
"""Words, and what they mean for shells that show it."""


def method_names(incomplete: str) -> Offers:
    """Methods by name."""
    from fedrec.methods import find

    return _fitting(((name, find(name).title) for name in _loadable()), incomplete)


def data_sets(incomplete: str) -> Offers:
    """Known data sets."""
    return _fitting(((name, entry.title) for name, entry in catalogue.items()), incomplete)


def protocols(incomplete: str) -> Offers:
    """Protocols by name."""
    from fedrec.protocol.presets import SUMMARIES

    return _fitting(SUMMARIES.items(), incomplete)


def devices(incomplete: str) -> Offers:
    """Devices of this machine."""
    import torch

    gpus = [(f"cuda:{n}", torch.cuda.get_device_name(n)) for n in range(torch.cuda.device_count())]
    plain = [("auto", "CUDA where there is one"), ("cpu", ""), *([("cuda", "the first GPU")] if gpus else [])]
    return _fitting([*plain, *(gpus if len(gpus) > 1 else [])], incomplete)


def studies(incomplete: str) -> Offers:
    """Studies that come with the package."""
    from fedrec.studies import study

    return _fitting(((name, study.find(name).title) for name in study.names()), incomplete)


def settings(context: Context, incomplete: str) -> Offers:
    """Settings of the method that stands on the command line."""
    from fedrec.methods import find
    from fedrec.parts.merged_method import PluginSettings

    try:
        kind = find(next(_said(context, "method"), ""))
    except FedrecError:
        return []
    return _fitting([*_keys(kind.Config), *_keys(PluginSettings)], incomplete)


def settings_of_several(context: Context, incomplete: str) -> Offers:
    """Settings as ``method:key=``, of the methods that stand on the command line."""
    from fedrec.methods import find

    found: list[tuple[str, str]] = []
    for label in _said(context, "methods"):
        try:
            kind = find(label.rpartition("=")[2])
        except FedrecError:
            continue
        found += [(f"{label.partition('=')[0]}:{key}", meaning) for key, meaning in _keys(kind.Config)]
    return _fitting(found, incomplete)


def protocol_choices(context: Context, incomplete: str) -> Offers:
    """Choices of a protocol, with what they are in the one that stands on the command line."""
    from fedrec.protocol import Protocol
    from fedrec.protocol.presets import PRESETS

    preset = PRESETS.get(str(context.params.get("protocol") or "honest"), PRESETS["honest"])
    named = ((f"{key}=", f"now {getattr(preset, key)}") for key in Protocol.model_fields if key != "name")
    return _fitting(named, incomplete)


def _said(context: Context, name: str) -> Iterator[str]:
    """The words of an argument; click leaves them unread where the line ends with an option that still needs its value."""
    value = context.params.get(name) or context.args
    yield from [value] if isinstance(value, str) else map(str, value)


def _loadable() -> Iterator[str]:
    """Methods without those of other packages that cannot be loaded."""
    from fedrec.methods import find, names

    for name in names():
        try:
            find(name)
        except FedrecError:
            continue
        yield name


def _keys(kind: type[Settings]) -> list[tuple[str, str]]:
    return [(f"{key}=", kind.meaning(key)) for key in kind.model_fields]


def _fitting(offers: Iterable[tuple[str, str]], incomplete: str) -> Offers:
    return [(word, meaning) for word, meaning in dict(offers).items() if word.startswith(incomplete)]
