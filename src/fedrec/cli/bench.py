"""``fedrec bench``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer
from rich.table import Table

from fedrec import bench
from fedrec.cli.common import DeviceOption, FormatOption, JsonOption, err, print_json
from fedrec.cli.tables import plain_table, put
from fedrec.compute.device import cpu_threads
from fedrec.errors import FedrecError

PHASES = ("sampling", "training", "aggregation", "evaluation")
ONCE = ("data stats", "split", "trainer", "lists")
"""What happens once and is worth a column."""
HEADS = (
    "case",
    "s/ round",
    "sam- pling",
    "train- ing",
    "aggre- gation",
    "evalu- ation",
    "clients /s",
    "steps /s",
    "MB",
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("bench")(bench_command)


def bench_command(
    case: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help=f"What to time; repeat it. One of {', '.join(bench.EVERY_CASE)}."),
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help=f"Data shape; repeat it. One of {', '.join(bench.SHAPES)}."),
    ] = None,
    rounds: Annotated[int, typer.Option(metavar="N", help="Timed rounds; the median is reported.", min=1)] = 3,
    device: DeviceOption = "auto",
    threads: Annotated[int | None, typer.Option(metavar="N", help="CPU threads.", min=1)] = None,
    all_cases: Annotated[bool, typer.Option("--all", help="Time all methods, on the ML-100K shape.")] = False,
    here: Annotated[
        bool, typer.Option("--here", help="Measure in this process instead of one process per case.")
    ] = False,
    growth: Annotated[
        bool, typer.Option("--growth", help="How the cost of a FedMF round grows with every size, instead.")
    ] = False,
    as_json: JsonOption = False,
    form: FormatOption = "text",
) -> None:
    """Measure seconds per round, clients per second and peak memory."""
    if growth:
        with cpu_threads(threads):
            grown = bench.growth(rounds=rounds)
        print_json({"growth": grown}) if as_json or form == "json" else put(_growth(grown), form)
        return
    cases = case or [*bench.CASES, *(bench.OTHERS if all_cases else ())]
    shapes = shape or (["ml-100k-shape"] if all_cases else list(bench.DEFAULT_SHAPES))
    results = []
    with cpu_threads(threads):
        if here:
            results = [
                bench.measure(c, s, rounds=rounds, device=device, tell=_stage(c, s)) for s in shapes for c in cases
            ]
        else:
            for found in bench.run_all(cases, shapes, rounds=rounds, device=device, threads=threads, tell=_tell):
                results.append(found)
                err.print(f"{found['case']} on {found['shape']}: {_outcome(found)}", soft_wrap=True)
    if as_json or form == "json":
        print_json({"results": results})
    else:
        for table in _tables(results):
            put(table, form)
    if failed := [found for found in results if "failed" in found]:
        first = failed[0]
        raise FedrecError(
            f"{len(failed)} of {len(results)} benchmarks failed; {first['case']} on {first['shape']}: {first['failed']}"
        )


def _tell(words: str) -> None:
    err.print(words, soft_wrap=True, style="dim", markup=False, highlight=False)


def _stage(case: str, shape: str) -> Callable[[str], None]:
    """Says which stage of a case begins."""
    return lambda stage: _tell(f"{case} on {shape}: {stage}")


def _growth(found: list[dict[str, Any]]) -> Table:
    rows = [
        [one["size"], f"{one['from']:,}", *(f"{s:.3f}" for s in one["cpu_seconds"]), f"{one['exponent']:.2f}"]
        for one in found
    ]
    return plain_table(("size", "from", "CPU s", "four times as large", "exponent"), rows)


def _tables(results: list[dict[str, Any]]) -> Iterator[Table]:
    """A table for each shape: side by side they would be wider than a terminal."""
    for shape in dict.fromkeys(found["shape"] for found in results):
        chosen = [found for found in results if found["shape"] == shape]
        where = dict.fromkeys(f"{r['device']}, threads: {r['threads']}" for r in chosen if "device" in r)
        caption = "; ".join(where) or None
        trained = [found for found in chosen if "seconds_per_round" in found or "once" not in found]
        if trained:
            yield plain_table(HEADS, [_row(found) for found in trained], title=shape, caption=caption)
        stages = [name for name in ONCE if any(name in found.get("once", {}) for found in chosen)]
        if stages:
            once = [
                [
                    found["case"],
                    *(_seconds(found["once"].get(name)) for name in stages),
                    f"{found['peak_memory_mb']:,.0f}",
                ]
                for found in chosen
                if "once" in found
            ]
            yield plain_table(("case", *stages, "MB"), once, title=f"{shape}: seconds, once", caption=caption)


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _row(found: dict[str, Any]) -> list[str]:
    if "seconds_per_round" not in found:
        return [found["case"], "failed" if "failed" in found else "not here", *[""] * (len(HEADS) - 2)]
    cells = [f"{found['phases'].get(name, 0):.3f}" for name in PHASES]
    rates = [f"{found[name]:,.0f}" for name in ("clients_per_second", "local_steps_per_second", "peak_memory_mb")]
    return [found["case"], f"{found['seconds_per_round']:.3f}", *cells, *rates]


def _outcome(found: dict[str, Any]) -> str:
    if "once" in found and "seconds_per_round" not in found:
        return f"split in {found['once']['split']:.2f} s"
    if "seconds_per_round" in found:
        return f"{found['seconds_per_round']:.3f} s per round"
    return f"failed: {found['failed']}" if "failed" in found else f"skipped: {found['skipped']}"
