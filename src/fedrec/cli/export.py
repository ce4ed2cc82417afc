"""``fedrec export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from fedrec.api import load_run
from fedrec.cli.common import DeviceOption, OwnMethodOption, RunFolder, check_path, err
from fedrec.serving.export import export, export_clients


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("export")(export_command)


def export_command(
    run: RunFolder,
    out: Annotated[str, typer.Option("-o", "--out", metavar="FOLDER", help="New folder.", callback=check_path)],
    clients: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Also what each user's device has, a file per user.", callback=check_path),
    ] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="Also model.onnx: history in, scores out.")] = False,
    counts: Annotated[bool, typer.Option("--counts/--no-counts", help="How many users had each item.")] = True,
    device: DeviceOption = "cpu",
    method: OwnMethodOption = None,
) -> None:
    """Write the model of a RUN to carry away: the server's state and the items, nobody's data or private state."""
    trained, folder = load_run(run, device=device, method=method), Path(out)
    checksum = export(trained, folder, counts=counts, onnx=onnx)
    size = sum(path.stat().st_size for path in folder.iterdir())
    err.print(
        f"{folder}: {trained.method.name}, {trained.split.data.n_items:,} items, {size / 1e6:,.1f} MB.", soft_wrap=True
    )
    if clients is not None:
        with Progress(console=err, transient=True) as bar:
            task = bar.add_task("users", total=trained.split.data.n_users)
            count = export_clients(trained, clients, checksum, lambda one: bar.advance(task, one))
        err.print(f"{clients}: {count:,} client parts; each belongs on its user's device alone.", soft_wrap=True)
