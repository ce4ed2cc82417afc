"""``fedrec reproduce``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from fedrec.cli import completing
from fedrec.cli.common import (
    DataDirOption,
    DeviceOption,
    Form,
    FormatOption,
    JsonOption,
    err,
    named_path,
    out,
    print_json,
)
from fedrec.cli.tables import plain_table, put
from fedrec.studies import study as studies
from fedrec.studies.result import StudyResult
from fedrec.studies.runner import OUT, reproduce
from fedrec.studies.table import Section, missing, sections

JobsOption = Annotated[
    int | None, typer.Option(help="Cells at a time; by default one per core and thread, on CUDA up to 4.", min=1)
]
ThreadsOption = Annotated[
    int, typer.Option(help="CPU threads of a cell; with one, numbers do not depend on the machine's cores.", min=1)
]
OutOption = Annotated[
    Path,
    typer.Option(
        "--out",
        metavar="FOLDER",
        parser=named_path,
        help="Folder of studies; finished cells in it are never run again.",
    ),
]
QuietOption = Annotated[bool, typer.Option("--quiet", help="No progress.")]

BORDER = 3
"""Columns of the screen between two columns of a table."""


@contextmanager
def going_on() -> Iterator[None]:
    """Tell whoever interrupts that nothing which is finished is lost; the exit code is 130."""
    try:
        yield
    except KeyboardInterrupt as error:
        err.print(str(error) or "interrupted; the same command goes on.", soft_wrap=True)
        raise


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("reproduce")(reproduce_command)


def reproduce_command(
    study: Annotated[
        str | None,
        typer.Argument(help="Name of a study, or a file of your own (.toml).", autocompletion=completing.studies),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(help="Data set or file; repeat it. Default: the study's.", autocompletion=completing.data_sets),
    ] = None,
    protocol: Annotated[
        list[str] | None, typer.Option(help="Protocol, or both (all of the study); repeat it. Default: both.")
    ] = None,
    row: Annotated[
        list[str] | None, typer.Option(help="Row of the table, by its label; repeat it. Default: all.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Runs per row, with seeds 0, 1, ...", min=1)] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds instead of the study's, for a quick look.", min=0)] = None,
    device: DeviceOption = "auto",
    jobs: JobsOption = None,
    threads: ThreadsOption = 1,
    out_folder: OutOption = OUT,
    no_run: Annotated[bool, typer.Option("--no-run", help="Train nothing; show what is there.")] = False,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
    form: FormatOption = "text",
    quiet: QuietOption = False,
) -> None:
    """Run a table or figure of a paper and print ours beside what was published; without a name, list the studies."""
    if study is None:
        _list("json" if as_json else form)
        return
    with going_on():
        result = reproduce(
            study,
            data=data or (),
            protocols=() if "both" in (protocol or ["both"]) else protocol or (),
            seeds=seeds,
            rounds=rounds,
            device=device,
            jobs=jobs,
            threads=threads,
            out=out_folder,
            data_dir=data_dir,
            progress=not quiet,
            run=not no_run,
            rows=row or (),
        )
    show(result, out_folder, "json" if as_json else form)


def show(result: StudyResult, folder: Path, form: Form) -> None:
    """Print a study's result; exit code 1 where cells have none."""
    if form == "json":
        print_json(result.model_dump(mode="json"))
    elif form == "csv":  # tables one after another are for people
        print(result.to_csv(), end="")
    elif form != "text":
        for number, section in enumerate(sections(result)):
            if number:
                print()
            put(plain_table(section.columns, section.rows, title=section.title), form)
    else:
        out.print(result.title, style="bold", soft_wrap=True)
        if result.note:
            out.print(result.note, soft_wrap=True)
        for section in sections(result):
            title = Text(section.title, style="red" if section.leaks else "")
            widths = _widths(section)
            for places in _fitting(widths, out.width):
                table = Table(title=title, title_justify="left")
                title = Text("further columns", style=title.style)
                for place in places:
                    side: JustifyMethod = "right" if place else "left"
                    table.add_column(section.columns[place], justify=side, overflow="fold", width=widths[place])
                for row in section.rows:
                    table.add_row(*[row[place] for place in places])
                out.print(table)
        err.print(f"Written to {folder / result.name}: study.json, table.md, table.csv, table.parquet.")
    gaps = missing(result)
    for gap in gaps[:20]:
        err.print(Text.assemble(("no result", "yellow"), " ", gap), soft_wrap=True)
    if len(gaps) > 20:
        err.print(f"... and {len(gaps) - 20} more; all are in table.md.")
    if gaps:
        sys.exit(1)


def _widths(section: Section) -> list[int]:
    """Of columns in which only headings wrap."""
    lines = [[max(name.split(), key=len, default="") for name in section.columns], *section.rows]
    return [max(len(line[place]) for line in lines) for place in range(len(section.columns))]


def _fitting(widths: list[int], screen: int) -> list[list[int]]:
    """Columns of as many tables as it takes for none to be wider than the screen; each begins with the rows' names."""
    tables, room = [[0]], screen - 1 - widths[0] - BORDER
    for place in range(1, len(widths)):
        if widths[place] + BORDER > room and len(tables[-1]) > 1:
            tables.append([0])
            room = screen - 1 - widths[0] - BORDER
        tables[-1].append(place)
        room -= widths[place] + BORDER
    return tables


def _list(form: Form) -> None:
    known = [studies.find(name) for name in studies.names()]
    if form == "json":
        print_json([study.model_dump(mode="json") for study in known])
        return
    rows = [
        [one.name, one.title, ", ".join(one.data), ", ".join(one.protocols), str(len(one.rows)), str(one.cells)]
        for one in known
    ]
    put(plain_table(["study", "what", "data sets", "protocols", "rows", "cells"], rows, texts=4), form)
    (out if form == "text" else err).print(
        "Run one with: fedrec reproduce NAME, or a part of it with --data, --protocol and --row."
    )
