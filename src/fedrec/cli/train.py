"""``fedrec train``, ``fedrec recommend``, ``fedrec show``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import torch
import typer
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
        float, typer.Option(help="Norm an upload's change is clipped to; 0: no clipping.", min=0)
    ] = 1.0,
    ldp_scale: Annotated[
        float, typer.Option(help="Noise scale (Laplace) or standard deviation (Gaussian).", min=0)
    ] = 0.01,
    ldp_delta: Annotated[float, typer.Option(help="Delta of the stated guarantee.")] = 1e-5,
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
        options = parse_settings(protocol_set or [])
        chosen = GIVEN.with_options(**options) if options else GIVEN
    else:
        chosen = read_protocol(protocol, protocol_set or [])
    options = parse_settings(settings or [])
    merge = options.pop("merge", merge)
    made = create(method, protocol=protocol, data=data, merge=merge, **options)
    privacy = None
    if ldp is not None:
        mechanism = choice("--ldp mechanism", ldp, ("laplace", "gaussian"))
        privacy = Privacy(mechanism=mechanism, clip=ldp_clip or None, scale=ldp_scale, delta=ldp_delta)
    interactions, source = read_data(data, data_dir)
    if split_file is not None:
        split = given_split(interactions, split_file, chosen, seed)
        source["split_file"] = str(split_file)
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
        out.print(result_table([run.result]))


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
        out.print(result_table(results))


def result_table(results: list[dict[str, Any]]) -> Table:
    """A table a newcomer understands; leaking rows are marked."""
    sets = ", ".join(dict.fromkeys(r["data"] for r in results))
    table = Table(
        title=f"{sets}: test results at the selected round",
        caption="HR, NDCG at 10 against 99 sampled items; full: against all items",
    )
    for name in (
        "method",
        "protocol",
        "HR@10",
        "NDCG@10",
        "full HR",
        "full NDCG",
        "round",
        "s/round",
        "KB up",
    ):
        table.add_column(name, justify="left" if name in ("method", "protocol") else "right")
    for r in results:
        test = r["test"]
        name = f"{r['protocol']} [red](leaks)[/red]" if r["leaks"] else r["protocol"]
        table.add_row(
            r["method"],
            name,
            *[_number(test["sampled"].get(metric)) for metric in ("hr@10", "ndcg@10")],
            *[_number(test["full"].get(metric)) for metric in ("hr@10", "ndcg@10")],
            f"{r['selected_round']}/{r['rounds']}",
            f"{r['seconds']['per_round']:.2f}",
            f"{r['bytes']['up_per_client_round'] / 1e3:.1f}",
        )
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
