"""``fedrec recommend``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fedrec.api import load_run
from fedrec.cli.common import DeviceOption, JsonOption, OwnMethodOption, RunFolder, check_path, err, out, print_json
from fedrec.cli.tables import Titles, no_titles, plain_table, ranking
from fedrec.data.columns import usual
from fedrec.errors import ConfigError, DataError
from fedrec.running.explanation import Explanation
from fedrec.running.list_files import check_name, write_lists
from fedrec.running.run import Run
from fedrec.serving.model import INFO, load_model


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("recommend")(recommend)


def recommend(
    run: RunFolder,
    user: Annotated[str | None, typer.Option(metavar="ID", help="Original id of a user.")] = None,
    users: Annotated[
        str | None, typer.Option(metavar="FILE", help="File of user ids, one in a line.", callback=check_path)
    ] = None,
    everybody: Annotated[bool, typer.Option("--all", help="All users of the run.")] = False,
    history: Annotated[
        str | None, typer.Option(metavar="ITEMS", help="Somebody new, by what they had, oldest first: a,b,c or a file.")
    ] = None,
    out_file: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Write a .csv or .parquet file.", callback=check_path)
    ] = None,
    k: Annotated[int, typer.Option("-k", help="Length of the list.", min=1)] = 10,
    only: Annotated[str | None, typer.Option(metavar="ITEMS", help="Only these: a,b,c or a file.")] = None,
    without: Annotated[str | None, typer.Option(metavar="ITEMS", help="Not these: a,b,c or a file.")] = None,
    titles: Annotated[bool, typer.Option("--titles", help="With --out: a column of titles.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say which past items, or parts of a blend, a score is made of.")
    ] = False,
    device: DeviceOption = "cpu",
    method: OwnMethodOption = None,
    as_json: JsonOption = False,
) -> None:
    """Recommend new items to users of a trained RUN (the folder that --out of train named), or to somebody new."""
    asked = [name for name, said in (("--user", user), ("--users", users), ("--history", history)) if said is not None]
    asked += ["--all"] * everybody
    if len(asked) != 1:
        said = " and ".join(asked) or "nobody"
        raise ConfigError(f"{said} cannot be recommended to; give one of --user, --users, --all and --history.")
    chosen: dict[str, Any] = {
        "only": None if only is None else listed(only),
        "without": [] if without is None else listed(without),
    }
    if users is not None or everybody:
        if out_file is None or explain:
            raise ConfigError(
                "lists of many users go to a file and have no reasons; give --out FILE, without --explain."
            )
        _write(load_run(run, device=device, method=method), users, Path(out_file), k, titles, chosen)
        return
    if out_file is not None:
        raise ConfigError("--out is for lists of many users; give --users or --all, or leave it out.")
    load = load_model if (run / INFO).is_file() else load_run
    trained = load(run, device=device, method=method)
    past = None if history is None else listed(history)
    found = trained.recommend(user, k, history=past, **chosen)
    if explain:
        items = [item for item, _ in found]
        if past is not None:
            reasons = trained.explain_history(past, *items)
        elif isinstance(trained, Run):
            reasons = trained.explain(str(user), *items)
        else:
            raise ConfigError("--explain needs a --history here: an exported model holds nobody's.")
        show_reasons(user, reasons, as_json, trained.title)
    else:
        show_list(user, found, as_json, k, trained.title)


def listed(text: str) -> list[str]:
    """Ids from a file, one in a line, or from a list with commas; a header with a usual name is left out."""
    path = Path(text)
    try:
        from_file = path.is_file()
    except OSError:  # a list that is longer than a name can be
        from_file = False
    if not from_file:
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as a list of ids ({error}).") from None
    lines = [line for line in lines if line]
    return lines[1:] if lines and any(usual(role, lines[:1]) is not None for role in ("user", "item")) else lines


def _write(run: Run, users: str | None, path: Path, k: int, titles: bool, chosen: dict[str, Any]) -> None:
    if titles and run.split.data.about is None:
        raise ConfigError("--titles: this run has no titles of items; train with --items FILE.")
    if users is not None and not Path(users).is_file():
        raise DataError(f"{users}: there is no such file of users; give one id in a line.")
    wanted = None if users is None else listed(users)
    check_name(path)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("users", total=run.split.data.n_users if wanted is None else len(wanted))
        rows = write_lists(
            path,
            run.lists(wanted, k, **chosen),
            run.split.data.user_ids,
            run.split.data.item_ids,
            run.title if titles else None,
            lambda count: bar.advance(task, count),
        )
    count = run.split.data.n_users if wanted is None else len(wanted)
    err.print(f"{path}: {rows:,} rows for {count:,} users.", soft_wrap=True, highlight=False)


def show_reasons(user: str | None, found: list[Explanation], as_json: bool, titles: Titles = no_titles) -> None:
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
    why = "parts" if any(one.parts for one in found) else "because of"
    title = f"Top {len(found)} for {_who(user)}, and why"
    out.print(plain_table(["item", why, "rank", "score"], rows, texts=2, title=title))


def show_list(
    user: str | None, found: list[tuple[str | int, float]], as_json: bool, k: int, titles: Titles = no_titles
) -> None:
    """Print a list of items with their scores."""
    if as_json:
        items = [titled({"item": item, "score": score}, titles) for item, score in found]
        print_json({"user": user, "items": items})
        return
    out.print(ranking(found, f"Top {k} for {_who(user)}", titles))


def _who(user: str | None) -> str:
    return "somebody with this history" if user is None else f"user {user}"


def titled(values: dict[str, Any], titles: Titles) -> dict[str, Any]:
    """Values of an item with its title, if it has one, and those of the items named as its reasons."""
    found = dict(values)
    if (title := titles(values["item"])) is not None:
        found["title"] = title
    if "because" in found:
        found["because"] = [titled(reason, titles) for reason in found["because"]]
    return found
