"""``fedrec recommend``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fedrec.api import load_run
from fedrec.cli.common import JsonOption, RunFolder, out, print_json
from fedrec.cli.tables import Titles, no_titles, plain_table, ranking
from fedrec.running.explanation import Explanation


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("recommend")(recommend)


def recommend(
    run: RunFolder,
    user: Annotated[str, typer.Option(help="Original id of a user.")],
    k: Annotated[int, typer.Option("-k", help="Length of the list.", min=1)] = 10,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say which past items, or parts of a blend, a score is made of.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the best new items for one user of a trained RUN (the folder that --out named)."""
    trained = load_run(run)
    found = trained.recommend(user, k)
    if explain:
        show_reasons(user, trained.explain(user, *(item for item, _ in found)), as_json, trained.title)
    else:
        show_list(user, found, as_json, k, trained.title)


def show_reasons(user: str, found: list[Explanation], as_json: bool, titles: Titles = no_titles) -> None:
    """Print a list of items with what their scores are made of."""
    if as_json:
        print_json({"user": user, "items": [titled(one.describe(), titles) for one in found]})
        return

    def shown(item: str | int) -> str:
        return titles(item) or str(item)

    def because(one: Explanation) -> list[tuple[str, float]]:
        return [*one.parts.items(), *((shown(reason.item), reason.part) for reason in one.reasons)]

    rows = [
        [
            shown(one.item),
            ", ".join(f"{name} ({part:+.3f})" for name, part in because(one)),
            str(rank),
            f"{one.score:.4f}",
        ]
        for rank, one in enumerate(found, 1)
    ]
    heads, title = ["item", "because of", "rank", "score"], f"Top {len(found)} for user {user}, and why"
    out.print(plain_table(heads, rows, texts=2, title=title))


def show_list(
    user: str, found: list[tuple[str | int, float]], as_json: bool, k: int, titles: Titles = no_titles
) -> None:
    """Print a list of items with their scores."""
    if as_json:
        items = [titled({"item": item, "score": score}, titles) for item, score in found]
        print_json({"user": user, "items": items})
        return
    out.print(ranking(found, f"Top {k} for user {user}", titles))


def titled(values: dict[str, Any], titles: Titles) -> dict[str, Any]:
    """Values of an item with its title, if it has one, and those of the items named as its reasons."""
    found = dict(values)
    if (title := titles(values["item"])) is not None:
        found["title"] = title
    if "because" in found:
        found["because"] = [titled(reason, titles) for reason in found["because"]]
    return found
