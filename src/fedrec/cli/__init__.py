"""The command line: one sentence and exit code 2 for a mistake, a traceback only with --debug."""

from __future__ import annotations

import sys

from fedrec.errors import FedrecError


def main(arguments: list[str] | None = None) -> None:
    """Entry point of ``fedrec``."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words == ["--version"]:
        from fedrec.version import installed_version

        print(installed_version())
        return
    from fedrec.cli.app import app  # with torch and all, which takes seconds

    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    try:
        app(words, standalone_mode=True)
    except FedrecError as error:
        if debug:
            raise
        from rich.console import Console
        from rich.markup import escape

        Console(stderr=True).print(f"[red]error:[/red] {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(1)
