"""``fedrec train``, ``fedrec recommend``, ``fedrec show``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from pydantic import ValidationError
from rich.table import Table

from fedrec.cli.common import (
    DataDirOption,
    DataOption,
    JsonOption,
    ProtocolOption,
    SeedOption,
    choice,
    err,
    out,
    parse_settings,
    print_json,
    read_data,
    read_protocol,
)
from fedrec.cli.tables import print_results
from fedrec.errors import ConfigError
from fedrec.federation.privacy import Privacy
from fedrec.federation.run import read_result, train
from fedrec.methods import create
from fedrec.protocol.given import GIVEN, given_split
from fedrec.runs import load_run

RunFolder = Annotated[Path, typer.Argument(help="Folder of a finished run (what --out named).")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("train")(train_command)
    app.command("recommend")(recommend)
    app.command("show")(show)


def train_command(
    method: Annotated[str, typer.Argument(help="Name of a method; see 'fedrec methods'.")],
    data: DataOption = "ml-100k",
    protocol: ProtocolOption = "honest",
    rounds: Annotated[
        int | None, typer.Option(help="Rounds of training; by default the method's own number.", min=0)
    ] = None,
    seed: SeedOption = 0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the method, key=value; repeat it.")
    ] = None,
    protocol_set: Annotated[
        list[str] | None, typer.Option(help="A choice of the protocol, key=value; repeat it.")
    ] = None,
    merge: Annotated[
        str | None,
        typer.Option(help="How clients merge the downloaded table: elastic, dynamic, static, replace."),
    ] = None,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Run folder for logs, checkpoints, result and model.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    threads: Annotated[int | None, typer.Option(help="CPU threads.", min=1)] = None,
    split_file: Annotated[
        Path | None, typer.Option(help="Test pairs (user,item) of a published split; replaces --protocol.")
    ] = None,
    evaluate_every: Annotated[int, typer.Option(help="Evaluate every so many rounds.", min=1)] = 1,
    checkpoint_every: Annotated[
        int, typer.Option(help="Write a checkpoint every so many rounds (needs --out).", min=0)
    ] = 10,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    store: Annotated[str, typer.Option(help="Where client state lives: memory or disk.")] = "memory",
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
    ] = False,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Train a method and judge it under a protocol."""
    if threads:
        torch.set_num_threads(threads)
    if split_file is not None:
        options = parse_settings(protocol_set or [], "--protocol-set")
        chosen = GIVEN.with_options(**options) if options else GIVEN
    else:
        chosen = read_protocol(protocol, protocol_set or [])
    options = parse_settings(settings or [])
    merge = options.pop("merge", merge)
    made = create(method, options, protocol=protocol, data=data, merge=None if merge is None else str(merge))
    privacy = _privacy(ldp, ldp_clip, ldp_scale, ldp_delta)
    named = {"user": user_column, "item": item_column, "rating": rating_column, "timestamp": time_column}
    interactions, source = read_data(data, data_dir, {key: name for key, name in named.items() if name})
    if split_file is not None:
        split = given_split(interactions, split_file, chosen, seed)
        source["split_file"] = str(split_file.resolve())
    else:
        split = chosen.split(interactions, seed)
    if chosen.leaks and not quiet:
        err.print(
            f"[yellow]protocol '{chosen.name}' leaks: {'; '.join(chosen.leak_reasons)}.[/yellow]",
            soft_wrap=True,
        )
    run = train(
        made,
        split,
        rounds=rounds,
        seed=seed,
        device=device,
        out=out_dir,
        evaluate_every=evaluate_every,
        checkpoint_every=checkpoint_every if out_dir else 0,
        resume=resume,
        progress=not quiet,
        privacy=privacy,
        store=choice("store", store, ("memory", "disk")),
        source=source,
        tensorboard=tensorboard,
    )
    if as_json:
        print_json(run.result)
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


def recommend(
    run: RunFolder,
    user: Annotated[str, typer.Option(help="Original id of a user.")],
    k: Annotated[int, typer.Option("-k", help="Length of the list.", min=1)] = 10,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the best new items for one user of a trained run."""
    found = load_run(run, data_dir=data_dir).recommend(user, k)
    if as_json:
        print_json({"user": user, "items": [{"item": item, "score": score} for item, score in found]})
        return
    table = Table("rank", "item", "score", title=f"Top {k} for user {user}")
    for rank, (item, score) in enumerate(found, 1):
        table.add_row(str(rank), str(item), f"{score:.4f}")
    out.print(table)


def show(
    runs: Annotated[list[Path], typer.Argument(help="Folders of finished runs.")], as_json: JsonOption = False
) -> None:
    """Print the results of one or several runs side by side."""
    results = [read_result(run) for run in runs]
    if as_json:
        print_json(results[0] if len(results) == 1 else results)
    else:
        print_results(results)
