"""A command that several processes run together: the first one speaks for all."""

from __future__ import annotations

import os
import sys

from fedrec.cli.common import err
from fedrec.distributed import is_first, processes
from fedrec.errors import ConfigError


def one_speaks(words: list[str]) -> None:
    """Silence all processes but the first, and refuse commands that are not made for several."""
    if processes() == 1:
        return
    if words and words[0] != "train":
        raise ConfigError(
            f"'{words[0]}' runs in one process, and {processes()} were started; only 'train' runs in several."
        )
    if not is_first():
        err.quiet = True
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (for as long as the process lives)
