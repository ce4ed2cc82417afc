"""The command line: one sentence and exit code 2 for a mistake, a traceback only with --debug."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress

from fedrec.errors import FedrecError

LAUNCHED = "WORLD_SIZE"
"""Set in the environment by the launcher of several processes."""


def main(arguments: list[str] | None = None) -> None:
    """Entry point of ``fedrec``."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    try:
        try:
            _run(words)
        finally:
            sys.stdout.flush()  # what cannot be written is noticed here, not when the interpreter ends
    except FedrecError as error:
        if debug:
            raise
        from fedrec.cli.flags import sentence

        _fail(sentence(error, words[0] if words else ""))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # whoever reads the output has had enough
        _drop_output()
        sys.exit(1)
    except (MemoryError, RuntimeError) as error:
        if debug or not _out_of_memory(error):
            raise
        _fail(
            "there is not enough memory for this; use smaller settings (dim, layers, batch_size) or fewer users or items."
        )
    except OSError as error:
        if debug:
            raise
        if not error.filename:
            _drop_output()
        _fail(_sentence(error))


def _run(words: list[str]) -> None:
    if words == ["--version"]:
        from fedrec.version import installed_version

        print(installed_version())
        return
    app = _app(words)

    if LAUNCHED in os.environ:
        from fedrec.cli.launched import one_speaks

        one_speaks(words)

    app(words, standalone_mode=True)


def _app(words: list[str]) -> Callable[..., None]:
    """The commands that words may name: all of them come with torch, which takes seconds."""
    if words[:1] == ["data"]:
        from fedrec.cli.root import data_only

        return data_only()
    from fedrec.cli.app import app

    return app


def _fail(sentence: str) -> None:
    from fedrec.screen import print_error

    if LAUNCHED in os.environ:
        from fedrec.distributed import says_it

        if not says_it():
            sys.exit(2)
    with suppress(OSError):
        print_error(sentence)
    sys.exit(2)


def _sentence(error: OSError) -> str:
    """What the system refused; a stream has no name."""
    reason = error.strerror or str(error)
    if not error.filename:
        return f"the output cannot be written ({reason}); what was trained with --out is saved, and 'fedrec show' prints it."
    name = os.fsdecode(error.filename)
    shown = name if len(name) <= 200 else f"{name[:100]}... ({len(name):,} characters)"
    return f"{shown} cannot be used ({reason})."


def _out_of_memory(error: Exception) -> bool:
    """Whether memory could not be had; torch says so in a RuntimeError on the CPU, and in a kind of it on a GPU."""
    words = ("can't allocate memory", "not enough memory", "out of memory")
    return isinstance(error, MemoryError) or any(part in str(error) for part in words)


def _drop_output() -> None:
    """What stands in the buffer of a broken stdout must not fail again when the interpreter ends."""
    with suppress(OSError, ValueError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)
