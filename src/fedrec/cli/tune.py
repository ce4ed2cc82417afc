"""``fedrec tune``."""

from __future__ import annotations

from typing import Annotated

import typer

from fedrec.cli.common import (
    DEFAULT_PROTOCOL,
    DataDirOption,
    DataOption,
    JsonOption,
    SeedOption,
    out,
    parse_settings,
    print_json,
)
from fedrec.cli.reproduce import OutOption, QuietOption
from fedrec.cli.tables import plain_table
from fedrec.studies.runner import OUT
from fedrec.studies.tuning import tune

SHOWN = 10
"""Trials that are printed."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("tune")(tune_command)


def tune_command(
    method: Annotated[str, typer.Argument(help="Name of a method; see 'fedrec methods'.")],
    data: DataOption = "ml-100k",
    protocol: Annotated[str, typer.Option(help="honest, paper, pfedrec or hetefedrec.")] = DEFAULT_PROTOCOL,
    trials: Annotated[int, typer.Option(help="Combinations to try; more of them add to earlier ones.", min=1)] = 20,
    seed: SeedOption = 0,
    rounds: Annotated[
        int | None, typer.Option(help="Rounds of every trial; by default the method's own.", min=0)
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A setting that is fixed, key=value; repeat it.")
    ] = None,
    evaluate_every: Annotated[int, typer.Option(help="Evaluate every so many rounds.", min=1)] = 5,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "auto",
    threads: Annotated[int | None, typer.Option(help="CPU threads.", min=1)] = None,
    out_folder: OutOption = OUT,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Search good settings of a method on validation; test items are taken out of the data before it begins."""
    result = tune(
        method,
        data=data,
        protocol=protocol,
        trials=trials,
        seed=seed,
        rounds=rounds,
        settings=parse_settings(settings or []),
        evaluate_every=evaluate_every,
        device=device,
        threads=threads,
        out=out_folder,
        data_dir=data_dir,
        progress=not quiet,
    )
    if as_json:
        print_json(result.model_dump(mode="json") | {"best": result.best.model_dump(mode="json")})
        return
    names = list(result.best.settings)
    finished = sorted((t for t in result.trials if t.value is not None), key=lambda trial: -(trial.value or 0.0))
    rows = [
        [str(t.number), f"{t.value:.4f}", str(t.selected_round), *(_word(t.settings.get(name)) for name in names)]
        for t in finished[:SHOWN]
    ]
    heads = ["trial", result.metric, "round", *names]
    out.print(plain_table(heads, rows, texts=0, title=f"{method} on {data}: the best {SHOWN} trials at most"))
    out.print(f"Train with the best: fedrec train {method} --config {result.config_file}", soft_wrap=True)


def _word(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
