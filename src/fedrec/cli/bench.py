"""``fedrec bench``."""

from __future__ import annotations

from typing import Annotated

import torch
import typer
from rich.table import Table

from fedrec import bench
from fedrec.cli.common import JsonOption, err, out, print_json


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("bench")(bench_command)


def bench_command(
    case: Annotated[
        list[str] | None, typer.Option(help=f"What to time; repeat it. One of {', '.join(bench.CASES | bench.OTHERS)}.")
    ] = None,
    shape: Annotated[
        list[str] | None, typer.Option(help=f"Data shape; repeat it. One of {', '.join(bench.SHAPES)}.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Timed rounds; the median is reported.", min=1)] = 3,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    threads: Annotated[int | None, typer.Option(help="CPU threads.", min=1)] = None,
    all_cases: Annotated[bool, typer.Option("--all", help="Time all methods, on the ML-100K shape.")] = False,
    here: Annotated[
        bool, typer.Option("--here", help="Measure in this process instead of one process per case.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Measure seconds per round, clients per second and peak memory."""
    if threads:
        torch.set_num_threads(threads)
    cases = case or [*bench.CASES, *(bench.OTHERS if all_cases else ())]
    shapes = shape or (["ml-100k-shape"] if all_cases else list(bench.DEFAULT_SHAPES))
    results = []
    if here:
        results = [bench.measure(c, s, rounds=rounds, device=device) for s in shapes for c in cases]
    else:
        for found in bench.run_all(cases, shapes, rounds=rounds, device=device, threads=threads):
            results.append(found)
            err.print(
                f"{found['case']} on {found['shape']}: {found.get('seconds_per_round', 'skipped')}", highlight=False
            )
    if as_json:
        print_json({"results": results})
        return
    names = ("sampling", "training", "aggregation", "evaluation")
    table = Table("case", "shape", "s/round", *names, "clients/s", "steps/s", "peak MB", "threads", "device")
    for r in results:
        if "skipped" in r:
            table.add_row(r["case"], r["shape"], r["skipped"])
            continue
        cells = [f"{r['phases'].get(name, 0):.3f}" for name in names]
        rates = [
            f"{r['clients_per_second']:,.0f}",
            f"{r['local_steps_per_second']:,.0f}",
            f"{r['peak_memory_mb']:,.0f}",
        ]
        table.add_row(
            r["case"], r["shape"], f"{r['seconds_per_round']:.3f}", *cells, *rates, str(r["threads"]), r["device"]
        )
    out.print(table)
