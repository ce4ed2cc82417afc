"""``fedrec compare``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fedrec.cli import completing
from fedrec.cli.common import (
    DATA,
    DataDirOption,
    DeviceOption,
    FormatOption,
    JsonOption,
    parse_settings,
)
from fedrec.cli.reproduce import JobsOption, OutOption, QuietOption, ThreadsOption, going_on, show
from fedrec.errors import ConfigError
from fedrec.studies.comparing import compare
from fedrec.studies.runner import OUT


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("compare")(compare_command)


def compare_command(
    methods: Annotated[
        list[str],
        typer.Argument(
            help="Methods, also as label=method to have one twice, or folders of finished runs.",
            autocompletion=completing.method_names,
        ),
    ],
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="Data set or file; repeat it. Default: ml-100k, or that of the runs where all are folders.",
            autocompletion=completing.data_sets,
        ),
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="As for train. Default: honest, or that of the runs where all are folders.",
            rich_help_panel=DATA,
            autocompletion=completing.protocols,
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs per method, with seeds 0, 1, ...", min=1)] = 3,
    rounds: Annotated[int | None, typer.Option(help="Rounds instead of each method's own.", min=0)] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A setting of one method, method:key=value; repeat it.",
            autocompletion=completing.settings_of_several,
        ),
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="What the others are tested against; by default the best on validation.")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(help="What is tested, such as 'full ndcg@10'; by default what the protocol selects by."),
    ] = None,
    evaluate_every: Annotated[
        int | None, typer.Option(help="Evaluate every so many rounds. Default: 5; blend: 1.", min=1)
    ] = None,
    device: DeviceOption = "auto",
    jobs: JobsOption = None,
    threads: ThreadsOption = 1,
    out_folder: OutOption = OUT,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
    form: FormatOption = "text",
    quiet: QuietOption = False,
) -> None:
    """Compare methods on the same splits: one table, and paired tests over users against a reference."""
    with going_on():
        result = compare(
            methods,
            data=data,
            protocol=protocol,
            seeds=seeds,
            rounds=rounds,
            settings=_by_method(settings or []),
            reference=reference,
            metric=metric,
            evaluate_every=evaluate_every,
            device=device,
            jobs=jobs,
            threads=threads,
            out=out_folder,
            data_dir=data_dir,
            progress=not quiet,
        )
    show(result, out_folder, "json" if as_json else form)


def _by_method(pairs: list[str]) -> dict[str, dict[str, Any]]:
    """Settings by method, from ``method:key=value``."""
    found: dict[str, dict[str, Any]] = {}
    for pair in pairs:
        label, sign, setting = pair.partition(":")
        if not sign or "=" in label:
            raise ConfigError(f"--set takes method:key=value here, not '{pair}'.")
        found.setdefault(label, {}).update(parse_settings([setting]))
    return found
