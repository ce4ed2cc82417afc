"""Options of reading and choices of a protocol as they are written on the command line, for refusals that name them."""

from __future__ import annotations

from functools import partial

from fedrec.errors import FedrecError, OptionError

_COLUMNS = {"user": "--user-column", "item": "--item-column", "rating": "--rating-column", "timestamp": "--time-column"}

_CHOICES = ("candidates", "min_interactions")
"""Those of a protocol that refusals name."""
_WITH_CHOICES = ("train", "federation")
"""Commands with an option for them; others have a protocol's name carry them."""


def sentence(error: FedrecError, command: str = "train") -> str:
    """What is wrong and what to do, with flags of the command instead of Python's options."""
    return error.told(partial(flag, command=command)) if isinstance(error, OptionError) else str(error)


def flag(option: str, value: object, command: str = "train") -> str:
    """An option and its value as they are typed."""
    if option in _CHOICES and command != "data":
        return f"{'--protocol-set ' if command in _WITH_CHOICES else '--protocol NAME:'}{option}={value}"
    if option == "header":
        return "--header" if value else "--no-header"
    name = _COLUMNS.get(option, f"--{option.replace('_', '-')}")
    if value is True:
        return name
    return f"{name} {'none' if value is None else value}"
