"""``fedrec recommend``."""

from __future__ import annotations

from typing import Annotated

import typer

from fedrec.api import load_run
from fedrec.cli.common import JsonOption, RunFolder, out, print_json
from fedrec.cli.tables import ranking


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("recommend")(recommend)


def recommend(
    run: RunFolder,
    user: Annotated[str, typer.Option(help="Original id of a user.")],
    k: Annotated[int, typer.Option("-k", help="Length of the list.", min=1)] = 10,
    as_json: JsonOption = False,
) -> None:
    """Print the best new items for one user of a trained RUN (the folder that --out named)."""
    show_list(user, load_run(run).recommend(user, k), as_json, k)


def show_list(user: str, found: list[tuple[str | int, float]], as_json: bool, k: int) -> None:
    """Print a list of items with their scores."""
    if as_json:
        print_json({"user": user, "items": [{"item": item, "score": score} for item, score in found]})
        return
    out.print(ranking(found, f"Top {k} for user {user}"))
