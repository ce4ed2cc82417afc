"""``fedrec tune``."""

from __future__ import annotations

from typing import Annotated

import typer

from fedrec.cli import completing
from fedrec.cli.common import (
    DEFAULT_PROTOCOL,
    DataDirOption,
    DataOption,
    DeviceOption,
    FormatOption,
    JsonOption,
    MethodArgument,
    ProtocolOption,
    SeedOption,
    err,
    out,
    parse_settings,
    print_json,
)
from fedrec.cli.reproduce import OutOption, QuietOption, going_on
from fedrec.cli.tables import plain_table, put
from fedrec.studies.runner import OUT
from fedrec.studies.tuning import tune

SHOWN = 10
"""Trials that are printed."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("tune")(tune_command)


def tune_command(
    method: MethodArgument,
    data: DataOption = "ml-100k",
    protocol: ProtocolOption = DEFAULT_PROTOCOL,
    trials: Annotated[int, typer.Option(help="Combinations to try; more of them add to earlier ones.", min=1)] = 20,
    seed: SeedOption = 0,
    rounds: Annotated[
        int | None, typer.Option(help="Rounds of every trial; by default the method's own.", min=0)
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="A setting that is fixed, key=value; repeat it.", autocompletion=completing.settings
        ),
    ] = None,
    evaluate_every: Annotated[
        int | None, typer.Option(help="Evaluate every so many rounds. Default: 5; blend: 1.", min=1)
    ] = None,
    device: DeviceOption = "auto",
    threads: Annotated[int | None, typer.Option(help="CPU threads.", min=1)] = None,
    out_folder: OutOption = OUT,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
    form: FormatOption = "text",
    quiet: QuietOption = False,
) -> None:
    """Search good settings of a method on validation; test items are taken out of the data before it begins."""
    with going_on():
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
    if as_json or form == "json":
        print_json(result.model_dump(mode="json") | {"best": result.best.model_dump(mode="json")})
        return
    names = list(result.best.settings)
    finished = sorted((t for t in result.trials if t.value is not None), key=lambda trial: -(trial.value or 0.0))
    rows = [
        [str(t.number + 1), f"{t.value:.4f}", str(t.selected_round), *(_word(t.settings.get(name)) for name in names)]
        for t in finished[:SHOWN]
    ]
    heads = ["trial", result.metric, "round", *names]
    put(plain_table(heads, rows, texts=0, title=f"{method} on {data}: the best {SHOWN} trials at most"), form)
    (out if form == "text" else err).print(
        f"Train with the best: fedrec train --config {result.config_file}", soft_wrap=True
    )


def _word(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
