"""One page that needs nothing else: tables, figures, and the script that draws them, plotly.js packed into it."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from importlib.resources import files

from fedrec.errors import ConfigError
from fedrec.report import details, palette
from fedrec.report.figure import Figure, Panel, Series
from fedrec.report.markup import Cell, folded, paragraph, table, text
from fedrec.report.rows import Section
from fedrec.report.summary import findings, summary_table

MOST_COLUMNS = 9
"""Of the numbers of a figure; between the first and the last, as many are left out as need be."""


def page(sections: Sequence[tuple[Section, Sequence[Figure]]]) -> str:
    """The whole page; equal input gives equal text."""
    figures = [figure for _, drawn in sections for figure in drawn]
    library, packed = _plotly() if figures else ("", "")
    script = _own("page.js")
    policy = (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {_hash(script)} {_hash(library)}"
    )
    title = _title([section for section, _ in sections])
    style = (
        _own("page.css")
        .replace("LIGHT_COLOURS", " ".join(palette.LIGHT))
        .replace("DARK_COLOURS", " ".join(palette.DARK))
    )
    numbered = iter(range(len(figures)))
    body = [
        _section(n, section, drawn, numbered, alone=len(sections) == 1)
        for n, (section, drawn) in enumerate(sections, 1)
    ]
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta name="generator" content="fedrec">\n<link rel="icon" href="data:,">\n<title>{text(title)}</title>',
            f"<style>{style}</style>\n</head>\n<body>",
            f'<header>\n<p class="kind">fedrec report</p>\n<h1>{text(title)}</h1>\n{_opening(sections)}\n</header>',
            f"<main>\n{''.join(body)}\n</main>",
            "<footer><p>Made by <code>fedrec report</code>. Everything is in this file; it loads nothing.</p></footer>",
            f'<script type="application/json" id="figures">{_data(figures)}</script>',
            f'<script type="text/plain" id="plotly">{packed}</script>',
            f"<script>{script}</script>\n</body>\n</html>\n",
        ]
    )


def _title(sections: list[Section]) -> str:
    if len(sections) == 1 and sections[0].key != "runs":
        return sections[0].study.title or sections[0].study.name
    parts = []
    studies = sum(section.key != "runs" for section in sections)
    runs = sum(len(row.runs) for section in sections if section.key == "runs" for row in section.rows)
    if studies:
        parts.append("one study" if studies == 1 else f"{studies} studies")
    if runs:
        parts.append("one run" if runs == 1 else f"{runs} runs")
    title = " and ".join(parts)
    data = list(dict.fromkeys(name for section in sections for name in section.study.data))
    return f"{title[0].upper()}{title[1:]} on {', '.join(data)}"


def _opening(sections: Sequence[tuple[Section, Sequence[Figure]]]) -> str:
    reasons: dict[str, str] = {}
    for section, _ in sections:
        for row in section.rows:
            if row.record.leaks:
                known = "; ".join(row.runs[0].result.leak_reasons) if row.runs else ""
                reasons[row.record.protocol] = known or reasons.get(row.record.protocol, "")
    said = "".join(
        f"<p>Protocol {text(name)}: {text(why or 'it gives the test set away')}.</p>" for name, why in reasons.items()
    )
    warning = ""
    if reasons:
        words = 'Rows marked <span class="leak">leaks</span> are not to be compared with the others.'
        warning = f'<div class="warning" role="note"><p><strong>{words}</strong></p>{said}</div>'
    links = []
    for n, (section, drawn) in enumerate(sections, 1):
        if len(sections) > 1:
            links.append((f"s{n}", section.study.title or section.study.name))
        else:
            links += [(f"s{n}-{figure.key}", figure.title) for figure in drawn]
            links += [(f"s{n}-configuration", "Configuration"), (f"s{n}-versions", "Versions and hashes")]
    items = "".join(f'<li><a href="#{text(anchor)}">{text(title)}</a></li>' for anchor, title in links)
    return f'{warning}<nav aria-label="Contents"><ul>{items}</ul></nav>'


def _section(n: int, section: Section, figures: Sequence[Figure], numbered: object, *, alone: bool) -> str:
    study = section.study
    paper = f"Published in: {study.paper}." if study.paper else ""
    parts = [f'<section id="s{n}">']
    parts.append(f"<h2>{text('Results' if alone else study.title or study.name)}</h2>")
    parts += [
        paragraph(study.note),
        paragraph(paper, "note"),
        findings(section),
        summary_table(section),
        details.missing(section),
    ]
    parts += [details.tests(section), details.measured(section)]
    drawn = "".join(_figure(n, next(numbered), figure) for figure in figures)  # type: ignore[call-overload]
    parts += [f'<div class="figures">{drawn}</div>'] if drawn else []
    parts += [f'<h3 id="s{n}-configuration">Configuration</h3>', details.configuration(section)]
    parts += [
        f'<h3 id="s{n}-versions">Versions and hashes</h3>',
        folded("Every run", details.versions(section)),
        "</section>",
    ]
    return "\n".join(part for part in parts if part)


def _figure(section: int, place: int, figure: Figure) -> str:
    legend = "".join(
        f'<li><button type="button" aria-pressed="true" data-series="{n}"><svg width="18" height="14" aria-hidden="true"></svg>'
        f"{text(series.name)}</button></li>"
        for n, series in enumerate(figure.legend)
    )
    shown = (
        f'<ul class="legend" aria-label="Legend; press a name to hide it">{legend}</ul>'
        if [series.name for series in figure.legend] != ["ours"]
        else ""
    )
    panels = "".join(
        f'<div class="panel"><h4>{text(panel.title)}</h4><div class="plot" role="img" aria-label="{text(panel.words)}">'
        "<p>Drawing…</p></div></div>"
        for panel in figure.panels
    )
    numbers = "".join(_numbers(panel) for panel in figure.panels if not panel.x.hidden)
    wide = ' class="wide"' if len(figure.panels) > 1 else ""
    return (
        f'<figure id="s{section}-{text(figure.key)}" data-figure="{place}"{wide}><h3>{text(figure.title)}</h3>'
        f'<figcaption class="about">{paragraph(figure.about)}</figcaption>{shown}'
        f'<div class="panels{" one" if len(figure.panels) == 1 else ""}">{panels}</div>'
        "<noscript><p>Figures are drawn by a script; their numbers are below.</p></noscript>"
        f"{folded('The numbers of this figure', numbers) if numbers else ''}</figure>"
    )


def _numbers(panel: Panel) -> str:
    """What is drawn, as a table: all of it where it is little, else evenly spaced columns."""
    places = list(dict.fromkeys(x for series in panel.series for x in series.x))
    if not panel.x.categories:
        places.sort(key=float)
    step = max(1, -(-(len(places) - 1) // (MOST_COLUMNS - 1)))
    kept = list(dict.fromkeys([*places[::step], *places[-1:]])) if not panel.sideways else places
    if panel.sideways:
        heads = [Cell(panel.x.title or "row", "words"), *(Cell(series.name) for series in panel.series)]
        rows = [[Cell(str(x)), *(Cell(_at(series, x)) for series in panel.series)] for x in kept]
    else:
        heads = [Cell(panel.x.title, "words"), *(Cell(x if isinstance(x, str) else f"{x:.4g}") for x in kept)]
        rows = [[Cell(series.name), *(Cell(_at(series, x)) for x in kept)] for series in panel.series]
    return table(f"{panel.title}: {panel.y.title}", [heads], [("", rows)])


def _at(series: Series, x: float | str) -> str:
    value = series.y[0] if series.kind == "level" else dict(zip(series.x, series.y, strict=True)).get(x)
    return "" if value is None else f"{value:.4f}"


def _data(figures: Sequence[Figure]) -> str:
    """Figures for the script; no text in them can end it."""
    plain = {
        "dashes": palette.DASHES, "symbols": palette.SYMBOLS,
        "all": [asdict(figure) | {"legend": [asdict(series) for series in figure.legend]} for figure in figures],
    }  # fmt: skip
    words = json.dumps(plain, separators=(",", ":"), allow_nan=False)
    return words.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _own(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


@cache
def _plotly() -> tuple[str, str]:
    """The library's text, and the same packed."""
    try:
        library = (files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    except (ImportError, OSError):
        raise ConfigError("reports need plotly: pip install 'fedrec[report]'.") from None
    return library, base64.b64encode(gzip.compress(library.encode(), 9, mtime=0)).decode()


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
