"""Pieces of HTML; whatever is put into them is text, never markup."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    text: str
    kind: str = ""
    """Class of the cell."""
    html: bool = False
    """Whether the text is markup made here."""
    span: int = 1


def text(value: object) -> str:
    """Any value as text of a page."""
    return escape(str(value), quote=True)


def paragraph(words: str, kind: str = "") -> str:
    """A paragraph of plain words; nothing where there are none."""
    return f"<p{_class(kind)}>{text(words)}</p>" if words else ""


def table(caption: str, heads: Sequence[Sequence[Cell]], bodies: Sequence[tuple[str, Sequence[Sequence[Cell]]]]) -> str:
    """A table that scrolls by itself; the first cell of a row names it, and a body may have a heading (markup)."""
    width = max(sum(cell.span for cell in row) for row in heads)
    parts = [f'<div class="scroll" role="region" tabindex="0" aria-label="{text(caption)}"><table>']
    parts.append(f"<caption><span>{text(caption)}</span></caption><thead>")
    parts += [f"<tr>{''.join(_head(cell) for cell in row)}</tr>" for row in heads]
    parts.append("</thead>")
    for title, rows in bodies:
        parts.append("<tbody>")
        if title:
            parts.append(f'<tr><th scope="rowgroup" colspan="{width}"><span>{title}</span></th></tr>')
        for first, *rest in rows:
            parts.append(f'<tr><th scope="row">{_breakable(_inside(first))}</th>{"".join(map(_cell, rest))}</tr>')
        parts.append("</tbody>")
    return "".join([*parts, "</table></div>"])


def folded(title: str, inside: str) -> str:
    """What is shown when it is asked for."""
    return f"<details><summary>{text(title)}</summary>{inside}</details>"


def pairs(values: dict[str, str]) -> str:
    """Names and values."""
    return '<dl class="settings">' + "".join(
        f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in values.items()
    ) + "</dl>"  # fmt: skip


def _inside(cell: Cell) -> str:
    return cell.text if cell.html else text(cell.text)


def _breakable(markup: str) -> str:
    """Long names may be broken behind the signs in them; what is markup already stays as it is."""
    return markup if "<" in markup else re.sub(r"([+=_])(?=\w)", r"\1<wbr>", markup)


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def _head(cell: Cell) -> str:
    span = f' colspan="{cell.span}"' if cell.span > 1 else ""
    if not cell.text:
        return f"<td{span}></td>"
    return f'<th scope="{"colgroup" if cell.span > 1 else "col"}"{span}{_class(cell.kind)}>{_inside(cell)}</th>'


def _cell(cell: Cell) -> str:
    return f"<td{_class(cell.kind)}>{_inside(cell)}</td>"
