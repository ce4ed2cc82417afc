"""``fedrec show``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedrec.cli.common import FormatOption, JsonOption, err, print_json
from fedrec.cli.tables import by_rank, print_results
from fedrec.errors import FedrecError
from fedrec.federation.result import Result
from fedrec.running.saved import read_result
from fedrec.screen import print_error
from fedrec.studies.runner import CELLS


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("show")(show)


def show(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of finished runs.")],
    as_json: JsonOption = False,
    form: FormatOption = "text",
) -> None:
    """Print the results of one or several runs (their folders) side by side, the best first.

    A folder that holds no finished run is named and left out; the exit code is then 2. Folders of studies among others are passed over.
    """
    passed = [run for run in dict.fromkeys(runs) if len(runs) > 1 and holds_studies(run)]
    results, failed = read_all([run for run in runs if run not in passed])
    if not results and not failed:
        results, failed = read_all(passed)
    elif passed:
        names = ", ".join(map(str, passed))
        err.print(f"passed over, as they hold studies: {names}", soft_wrap=True, highlight=False)
    if as_json or form == "json":
        plain = [result.model_dump(mode="json") for result in results]
        if plain or not failed:
            print_json(plain[0] if len(runs) == 1 else plain)
    elif results:
        print_results(by_rank(results), form)
    for error in failed:
        print_error(str(error))
    if failed:
        raise typer.Exit(2)


def read_all(runs: list[Path]) -> tuple[list[Result], list[FedrecError]]:
    """The results that can be read, each folder once, and what is wrong with the others."""
    results, failed = [], []
    for run in dict.fromkeys(runs):
        try:
            results.append(read_result(run))
        except FedrecError as error:
            failed.append(error)
    return results, failed


def holds_studies(folder: Path) -> bool:
    """Whether a folder is that of a study, a comparison or a search, or what they lie in."""
    return (folder / CELLS).is_dir() or any(
        any(folder.glob(f"{depth}{name}")) for name in ("study.json", "tuning.json") for depth in ("", "*/")
    )
