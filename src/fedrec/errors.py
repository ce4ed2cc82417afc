"""Errors a user can mend: one sentence that says what, where and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable


class FedrecError(Exception):
    """A mistake in input, options or environment; the command line prints it and exits with code 2."""


class DataError(FedrecError):
    """A data set that cannot be found, read or used."""


class OptionError(DataError):
    """A refusal that an option would change; each way is what to do, the option's name and its value."""

    def __init__(self, sentence: str, *ways: tuple[str, str, object]) -> None:
        self.sentence, self.ways = sentence, ways
        super().__init__(self.told(lambda option, value: f"{option}={value!r}"))

    def told(self, write: Callable[[str, object], str]) -> str:
        """The whole sentence, with options as ``write`` puts them."""
        advice = ", or ".join(f"{advice} ({write(option, value)})" for advice, option, value in self.ways)
        return f"{self.sentence}; {advice}."


class AbsentError(DataError):
    """A known data set that is neither on this machine nor to be had."""


class ConfigError(FedrecError):
    """An option or setting that makes no sense."""


def brief(text: object, most: int = 80) -> str:
    """Text of somebody's file as a message can show it: in one line, and not too long."""
    line = "".join(sign if sign.isprintable() else " " for sign in str(text))
    return line if len(line) <= most else f"{line[:most]}... ({len(line):,} characters)"


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """Sentence for an unknown name, suggesting the nearest valid one."""
    names = sorted(known)
    if not names:
        return f"unknown {kind} '{name}'; there are none."
    near = difflib.get_close_matches(str(name)[:1000], names, n=1, cutoff=0.5)
    hint = f"did you mean '{brief(near[0])}'?" if near else f"known: {brief(', '.join(names), 1000)}."
    return f"unknown {brief(kind)} '{brief(name)}'; {hint}"
