"""``fedrec show``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedrec.cli.common import JsonOption, print_json
from fedrec.cli.tables import print_results
from fedrec.running.saved import read_result


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("show")(show)


def show(
    runs: Annotated[list[Path], typer.Argument(help="Folders of finished runs.")], as_json: JsonOption = False
) -> None:
    """Print the results of one or several runs side by side."""
    results = [read_result(run) for run in runs]
    if as_json:
        plain = [result.model_dump(mode="json") for result in results]
        print_json(plain[0] if len(plain) == 1 else plain)
    else:
        print_results(results)
