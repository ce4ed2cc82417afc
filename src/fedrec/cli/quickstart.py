"""``fedrec quickstart``: real data, the best quick method, FedEM and references under both protocols, and a recommendation."""

from __future__ import annotations

from typing import Annotated

import typer

from fedrec.api import train
from fedrec.cli.common import DataDirOption, SeedOption, err, out, read_data
from fedrec.cli.defaults import DEFAULTS
from fedrec.cli.splitting import split_data
from fedrec.cli.tables import print_results, ranking
from fedrec.data import catalogue
from fedrec.errors import AbsentError, ConfigError, unknown
from fedrec.protocol import preset
from fedrec.running.run import Run

RUNS = (("fedslist", 1), ("fedem", 50), ("fedmf", 100), ("local", 50), ("popularity", 1))
"""Methods and rounds: enough to see the point within three minutes on two cores."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("quickstart")(quickstart)


def quickstart(
    data_dir: DataDirOption = None,
    seed: SeedOption = DEFAULTS.seed,
    rounds: Annotated[int | None, typer.Option(help="Fewer rounds for a quicker look.", min=1)] = None,
    data: Annotated[str, typer.Option(help="Data set.")] = "ml-100k",
) -> None:
    """Get MovieLens-100K, train fedslist, FedEM and references under both protocols, print a table and a top 10."""
    if data not in catalogue:
        raise ConfigError(unknown("data set", data, catalogue))
    try:
        interactions, source = read_data(data, data_dir)
    except AbsentError as error:
        err.print(f"{error} Using the embedded demonstration data instead.", soft_wrap=True)
        interactions, source = read_data("demo", None)
    results, first = [], None
    for protocol in ("honest", "paper"):
        split = split_data(preset(protocol), interactions, seed)
        for name, usual in RUNS:
            count = usual if rounds is None else min(usual, rounds)
            run = train(name, split, rounds=count, seed=seed, evaluate_every=5, source=source)
            results.append(run.result)
            first = first or run
    print_results(results)
    out.print("leaks", style="red", end="")
    out.print(
        ": under 'paper', what FedEM's released code does, the held-out item is the only unseen item that\n"
        "is never a training negative, and the round is chosen on test. Training without any federation ('local') then\n"
        "looks excellent. Under 'honest' the same methods show what they really learn. See docs/protocols.md."
    )
    assert first is not None
    _show_list(first)
    _tell_next(interactions.name, first.split.data.user_ids[0])


def _show_list(run: Run) -> None:
    user = run.split.data.user_ids[0]
    out.print(ranking(run.recommend(user, 10), f"{run.method.name} recommends to user {user} (honest)", run.title))


def _tell_next(data: str, user: str | int) -> None:
    """What to try now."""
    out.print("Three commands to try next:")
    out.print(
        f"  fedrec train fedslist --data {data} --out runs/first    # or --data mine.csv, with your own rows",
        soft_wrap=True,
    )
    out.print(f"  fedrec recommend runs/first --user {user} --explain", soft_wrap=True)
    out.print("  fedrec export runs/first -o model && fedrec serve model    # a page to try it on", soft_wrap=True)
