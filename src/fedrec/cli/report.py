"""``fedrec report`` and ``fedrec plot``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from fedrec.cli.common import err, named_path
from fedrec.report.figures import figures
from fedrec.report.sources import read_sections
from fedrec.running.files import write_text

Inputs = Annotated[list[Path], typer.Argument(help="Folders of finished runs and of studies, or study.json files.")]
ModelsOption = Annotated[
    bool,
    typer.Option("--models/--no-models", help="Read saved models for what only they know, such as merging weights."),
]
UserOption = Annotated[
    str | None,
    typer.Option(help="Also lay out the item tables of this user, where clients merge; shows what the user has."),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("report")(report)
    app.command("plot")(plot)


def report(
    runs: Inputs,
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="FILE", parser=named_path, help="The page to write.")
    ] = Path("report.html"),
    models: ModelsOption = True,
    user: UserOption = None,
) -> None:
    """Write one page with tables and figures of runs and studies, for any browser, without network."""
    from fedrec.report.page import page

    found = [(section, figures(section, models=models, user=user)) for section in read_sections(runs)]
    write_text(out, page(found))
    _said(f"{out}: {out.stat().st_size / 1e6:.1f} MB, {sum(len(drawn) for _, drawn in found)} figures")


def plot(
    runs: Inputs,
    out: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", parser=named_path, help="Folder for the files.")
    ] = Path("plots"),
    format: Annotated[Literal["png", "svg"], typer.Option("--format", help="png or svg.")] = "png",
    models: ModelsOption = True,
    user: UserOption = None,
) -> None:
    """Write every figure of runs and studies as a PNG or SVG file."""
    from fedrec.report.images import save

    for section in read_sections(runs):
        for figure in figures(section, models=models, user=user):
            path = out / f"{section.key}-{figure.key}.{format}"
            save(figure, path)
            _said(str(path))


def _said(words: str) -> None:
    err.print(words, markup=False, highlight=False, soft_wrap=True)
