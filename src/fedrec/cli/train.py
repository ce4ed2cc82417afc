"""``fedrec train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from fedrec.api import train
from fedrec.cli.common import (
    DEFAULTS,
    DataDirOption,
    DataOption,
    JsonOption,
    ProtocolOption,
    SeedOption,
    choice,
    err,
    parse_settings,
    print_json,
    read_data,
    read_protocol,
)
from fedrec.cli.splitting import split_data
from fedrec.cli.tables import print_results
from fedrec.errors import ConfigError
from fedrec.federation.privacy import Privacy
from fedrec.methods import create
from fedrec.protocol.given import GIVEN, given_split
from fedrec.running.options import RunOptions


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("train")(train_command)


def train_command(
    method: Annotated[str, typer.Argument(help="Name of a method; see 'fedrec methods'.")],
    data: DataOption = "ml-100k",
    protocol: ProtocolOption = "honest",
    rounds: Annotated[
        int | None, typer.Option(help="Rounds of training; by default the method's own number.", min=0)
    ] = DEFAULTS.rounds,
    seed: SeedOption = DEFAULTS.seed,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the method, key=value; repeat it.")
    ] = None,
    protocol_set: Annotated[
        list[str] | None, typer.Option(help="A choice of the protocol, key=value; repeat it.")
    ] = None,
    merge: Annotated[
        str | None,
        typer.Option(help="How clients merge the downloaded table: elastic, dynamic, static, replace or none."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder for logs, checkpoints, result and model.")
    ] = DEFAULTS.out,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = DEFAULTS.device,
    threads: Annotated[int | None, typer.Option(help="CPU threads.", min=1)] = DEFAULTS.threads,
    split_file: Annotated[
        Path | None, typer.Option(help="Test pairs (user,item) of a published split; replaces --protocol.")
    ] = None,
    evaluate_every: Annotated[
        int, typer.Option(help="Evaluate every so many rounds.", min=1)
    ] = DEFAULTS.evaluate_every,
    checkpoint_every: Annotated[
        int, typer.Option(help="Write a checkpoint every so many rounds (needs --out).", min=0)
    ] = DEFAULTS.checkpoint_every,
    keep_checkpoints: Annotated[
        bool, typer.Option("--keep-checkpoints", help="Keep them when the run ends, so that rounds can be added later.")
    ] = DEFAULTS.keep_checkpoints,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = DEFAULTS.resume,
    store: Annotated[str, typer.Option(help="Where client state lives: memory or disk.")] = DEFAULTS.store,
    ldp: Annotated[str | None, typer.Option(help="Local differential privacy on uploads: laplace or gaussian.")] = None,
    ldp_clip: Annotated[
        float | None, typer.Option(help="Norm an upload's change is clipped to (default 1); 0: no clipping.")
    ] = None,
    ldp_scale: Annotated[
        float | None, typer.Option(help="Noise scale (Laplace) or standard deviation (Gaussian); default 0.01.")
    ] = None,
    ldp_delta: Annotated[float | None, typer.Option(help="Delta of the stated guarantee (default 1e-5).")] = None,
    user_column: Annotated[str | None, typer.Option(help="Name of the user column of an own file.")] = None,
    item_column: Annotated[str | None, typer.Option(help="Name of the item column.")] = None,
    rating_column: Annotated[str | None, typer.Option(help="Name of the rating column.")] = None,
    time_column: Annotated[str | None, typer.Option(help="Name of the timestamp column.")] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also log for TensorBoard, in the run folder.")
    ] = DEFAULTS.tensorboard,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = not DEFAULTS.progress,
) -> None:
    """Train a method and judge it under a protocol."""
    run_options = RunOptions.model_validate(
        {
            "rounds": rounds,
            "seed": seed,
            "device": device,
            "out": out,
            "evaluate_every": evaluate_every,
            "checkpoint_every": checkpoint_every,
            "keep_checkpoints": keep_checkpoints,
            "resume": resume,
            "progress": not quiet,
            "privacy": _privacy(ldp, ldp_clip, ldp_scale, ldp_delta),
            "store": choice("store", store, ("memory", "disk")),
            "tensorboard": tensorboard,
            "threads": threads,
        }
    )
    if split_file is not None:
        choices = parse_settings(protocol_set or [], "--protocol-set")
        chosen = GIVEN.with_options(**choices) if choices else GIVEN
    else:
        chosen = read_protocol(protocol, protocol_set or [])
    options = parse_settings(settings or [])
    if merge is not None and options.get("merge", merge) != merge:
        raise ConfigError(f"--merge {merge} and --set merge={options['merge']} contradict each other; leave one out.")
    made = create(method, options, protocol=protocol, data=data, merge=merge)
    named = {"user": user_column, "item": item_column, "rating": rating_column, "timestamp": time_column}
    interactions, source = read_data(data, data_dir, {key: name for key, name in named.items() if name})
    if split_file is not None:
        split = given_split(interactions, split_file, chosen, seed)
        source["split_file"] = str(split_file.resolve())
    else:
        split = split_data(chosen, interactions, seed, quiet)
    if chosen.leaks and not quiet:
        err.print(
            f"[yellow]protocol '{chosen.name}' leaks: {'; '.join(chosen.leak_reasons)}.[/yellow]",
            soft_wrap=True,
        )
    run = train(made, split, run_options, source=source)
    if as_json:
        print_json(run.result.model_dump(mode="json"))
    else:
        print_results([run.result])


def _privacy(ldp: str | None, clip: float | None, scale: float | None, delta: float | None) -> Privacy | None:
    given = {"clip": clip, "scale": scale, "delta": delta}
    if ldp is None:
        for name, value in given.items():
            if value is not None:
                raise ConfigError(f"--ldp-{name} has no effect without --ldp; add --ldp laplace or --ldp gaussian.")
        return None
    settings: dict[str, Any] = {"mechanism": choice("--ldp mechanism", ldp, ("laplace", "gaussian"))}
    settings |= {name: value for name, value in given.items() if value is not None}
    if clip == 0:
        settings["clip"] = None
    try:
        return Privacy(**settings)
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"--ldp-{first['loc'][0]} is {first['input']}: {first['msg']}.") from None
