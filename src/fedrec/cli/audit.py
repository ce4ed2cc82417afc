"""``fedrec audit``."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.progress import Progress

from fedrec.cli import completing
from fedrec.cli.audit_uploads import what_uploads_tell
from fedrec.cli.common import (
    DEFAULT_DATA,
    DataDirOption,
    DataListOption,
    FormatOption,
    JsonOption,
    SeedOption,
    err,
    out,
    print_json,
    read_data,
)
from fedrec.cli.own_data import NOTHING, reads_own_files
from fedrec.cli.splitting import filter_line
from fedrec.cli.tables import plain_table, put
from fedrec.data.filtered import Filtered
from fedrec.errors import ConfigError
from fedrec.evaluation.audit import audit, default_protocols
from fedrec.protocol import preset


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("audit")(audit_command)


@reads_own_files
def audit_command(
    data: DataListOption = DEFAULT_DATA,
    own: dict[str, Any] = NOTHING,
    protocol: Annotated[
        list[str] | None,
        typer.Option(help="Protocol to audit; repeat it. Default: all.", autocompletion=completing.protocols),
    ] = None,
    rounds: Annotated[str, typer.Option(help="Rounds after which to look, comma separated.")] = "1,10,100",
    uploads: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METHOD",
            help="In place of protocols: what a server infers from this method's uploads; repeat it.",
            autocompletion=completing.method_names,
        ),
    ] = None,
    epsilon: Annotated[float, typer.Option(help="With --uploads: budget of the noise.", min=0.001)] = 8.0,
    users: Annotated[int, typer.Option(help="With --uploads: users to attack, at most.", min=2)] = 500,
    seed: SeedOption = 0,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
    form: FormatOption = "text",
) -> None:
    """Does a protocol give its test items away to a scorer that learns nothing? Or do uploads give away who has what?"""
    if uploads:
        what_uploads_tell(uploads, read_data(data, data_dir, own)[0], epsilon, users, seed, "json" if as_json else form)
        return
    try:
        numbers = sorted({int(word) for word in rounds.split(",")})
    except ValueError:
        numbers = []
    if not numbers or numbers[0] < 1:
        raise ConfigError(f"--rounds takes positive numbers separated by commas, not '{rounds}'.")
    chosen = protocol or default_protocols()
    for name in chosen:
        preset(name)
    interactions, _ = read_data(data, data_dir, own)
    with Progress(console=err, transient=True) as bar:
        tasks = {name: bar.add_task(f"audit of {name}", total=numbers[-1]) for name in chosen}
        report = audit(
            chosen,
            interactions,
            rounds=numbers,
            seed=seed,
            progress=lambda name, n: bar.update(tasks[name], completed=n),
        )
    for name, found in report["protocols"].items():
        err.print(filter_line(name, Filtered.model_validate(found["filtered"])), soft_wrap=True)
    if as_json or form == "json":
        print_json(report)
        return
    rows = []
    for name, found in report["protocols"].items():
        for number, values in found["rounds"].items():
            cells = [
                values.get(kind, {}).get(metric) for kind in ("sampled", "full") for metric in ("hr@10", "ndcg@10")
            ]
            rows.append([name, number, *["-" if v is None else f"{v:.4f}" for v in cells]])
    heads = ["protocol", "rounds", "HR@10", "NDCG@10", "full HR@10", "full NDCG@10"]
    put(plain_table(heads, rows, title=f"A scorer that only counts its negatives, {', '.join(data)}"), form)
    for name, found in report["protocols"].items():
        out.print(name, style="red" if found["leaks"] else "green", end="")
        out.print(f": {found['verdict']}", soft_wrap=True)
