"""Where people are told something: consoles that print every text as it is.

Names of items, users, files and data sets come from outside. To a plain console of rich ``[rec] 31`` is a mark-up tag and
``:star:`` a picture, and an escape sequence in a name would steer the terminal. Colours are given by styles instead.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any

from rich.console import Console
from rich.text import Text

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
PIPE_WIDTH = 120
"""Columns where stdout is no terminal."""


class Screen(Console):
    """A console without mark-up."""

    def __init__(self, **options: Any) -> None:
        """Options are those of rich's console."""
        super().__init__(**{"markup": False, "highlight": False, "emoji": False} | options)

    def print(self, *objects: Any, **options: Any) -> None:
        """As rich does; what cannot be said on stderr, as when its log fills the disk, is not worth losing a run."""
        try:
            super().print(*objects, **options)
        except OSError:
            if not self.stderr:
                raise
            self._buffer.clear()

    def render_str(self, text: str, **options: Any) -> Text:
        """All that is printed comes by here: lines, cells, titles."""
        return super().render_str(plain(text), **options)


def plain(text: str) -> str:
    """A text without characters that steer a terminal."""
    return _CONTROL.sub("\ufffd", text)


def screen(*, stderr: bool = False) -> Screen:
    """The console for stdout or stderr."""
    width = None if stderr or sys.stdout.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    return Screen(stderr=stderr, width=width)


def print_error(sentence: str) -> None:
    """One line on stderr."""
    screen(stderr=True).print(Text.assemble(("error:", "red"), " ", plain(sentence)), soft_wrap=True)
