"""Tables as text for papers, pages and other programs: Markdown, LaTeX, CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable

from rich.table import Table

from fedrec.screen import plain

_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX |= {"<": r"\textless{}", ">": r"\textgreater{}"} | {sign: f"\\{sign}" for sign in "&%$#_{}"}


def written(table: Table, form: str) -> str:
    """The table in another form than the screen's, without a line break at the end."""
    heads = [" ".join(plain(str(column.header)).split()) for column in table.columns]
    rows = [
        list(row)
        for row in zip(*([plain(str(cell)) for cell in column.cells] for column in table.columns), strict=True)
    ]
    numbers = [column.justify == "right" for column in table.columns]
    title = plain(str(table.title)) if table.title else ""
    return {"markdown": _markdown, "latex": _latex, "csv": _csv}[form](title, heads, rows, numbers)


def _markdown(title: str, heads: list[str], rows: list[list[str]], numbers: list[bool]) -> str:
    def line(cells: list[str]) -> str:
        return "| " + " | ".join(" ".join(cell.replace("|", r"\|").split()) for cell in cells) + " |"

    sides = line(["---:" if number else "---" for number in numbers])
    return "\n".join([*([title, ""] if title else []), line(heads), sides, *map(line, rows)])


def _latex(title: str, heads: list[str], rows: list[list[str]], numbers: list[bool]) -> str:
    def line(cells: list[str]) -> str:
        return "  " + " & ".join(_escaped(" ".join(cell.split())) for cell in cells) + r" \\"

    return "\n".join(
        [
            *([f"% {title}"] if title else []),
            r"\begin{tabular}{" + "".join("r" if number else "l" for number in numbers) + "}",
            *(r"  \hline", line(heads), r"  \hline"),
            *map(line, rows),
            *(r"  \hline", r"\end{tabular}"),
        ]
    )


def _escaped(text: str) -> str:
    replace: Callable[[re.Match[str]], str] = lambda found: _LATEX[found[0]]  # noqa: E731
    return re.sub("[" + re.escape("".join(_LATEX)) + "]", replace, text)


def _csv(title: str, heads: list[str], rows: list[list[str]], numbers: list[bool]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([heads, *rows])
    return text.getvalue().removesuffix("\n")
