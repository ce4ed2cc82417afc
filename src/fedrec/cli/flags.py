"""Options of reading as they are written on the command line, for refusals that name them."""

from __future__ import annotations

from fedrec.errors import FedrecError, OptionError

_COLUMNS = {"user": "--user-column", "item": "--item-column", "rating": "--rating-column", "timestamp": "--time-column"}


def sentence(error: FedrecError) -> str:
    """What is wrong and what to do, with flags instead of Python's options."""
    return error.told(flag) if isinstance(error, OptionError) else str(error)


def flag(option: str, value: object) -> str:
    """An option and its value as they are typed."""
    if option == "header":
        return "--header" if value else "--no-header"
    name = _COLUMNS.get(option, f"--{option.replace('_', '-')}")
    if value is True:
        return name
    return f"{name} {'none' if value is None else value}"
