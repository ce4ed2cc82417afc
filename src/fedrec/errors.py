"""Errors a user can mend: one sentence that says what, where and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FedrecError(Exception):
    """A mistake in input, options or environment; the command line prints it and exits with code 2."""


class DataError(FedrecError):
    """A data set that cannot be found, read or used."""


class AbsentError(DataError):
    """A known data set that is neither on this machine nor to be had."""


class ConfigError(FedrecError):
    """An option or setting that makes no sense."""


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """Sentence for an unknown name, suggesting the nearest valid one."""
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(names)}."
    return f"unknown {kind} '{name}'; {hint}"
