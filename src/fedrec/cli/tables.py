"""Results as tables a newcomer understands. Texts fold where there is no room for them; heads and numbers are never cut."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from fedrec.cli.common import Form, out
from fedrec.cli.written import written

if TYPE_CHECKING:
    from fedrec.federation.result import Metrics, Result, ResultTable

Cell = str | Text
Metric = tuple[str, str]
"""Ranking (sampled or full) and name."""
WORD = 10
"""Longer words of a text may be broken where there is no room."""


def plain_table(
    heads: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    texts: int = 1,
    title: str | None = None,
    caption: str | None = None,
) -> Table:
    """A table whose first ``texts`` columns are words, and the others numbers."""
    style: dict[str, Any] = {"box": box.SIMPLE_HEAD, "show_edge": False, "pad_edge": False, "collapse_padding": True}
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left", **style)
    columns = [[head, *(str(row[number]) for row in rows)] for number, head in enumerate(heads)]
    tight = sum(max(map(len, column)) + 2 for column in columns) - 2 > out.width
    for number, (head, *cells) in enumerate(columns):
        if number < texts:
            words = head.split() + [word[:WORD] for cell in cells for word in cell.split()]
            table.add_column(head, overflow="fold", min_width=max(map(len, words), default=1))
        else:  # what is not wrapped is not cut either, as long as the words have room to give
            table.add_column("\n".join(head.split()) if tight else head, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def put(table: Table, form: Form = "text") -> None:
    """Print a table in the form that was asked for."""
    if form == "text":
        out.print(table)
    else:
        print(written(table, form))


def print_results(results: list[Result], form: Form = "text") -> None:
    """The runs side by side, and the tables their methods want printed. Protocols with other metrics get a table of their own."""
    kinds: dict[tuple[Metric, ...], list[Result]] = {}
    for result in results:
        kinds.setdefault(_metrics(result), []).append(result)
    for number, (metrics, group) in enumerate(kinds.items()):
        if number:
            print()
        put(result_table(group, metrics), form)
    for result in results:
        for table in result.tables:
            print()
            put(method_table(table), form)


def by_rank(results: list[Result]) -> list[Result]:
    """Results in the order of a table: by data and protocol, and the best first by the first metric."""

    def place(result: Result) -> tuple[str, str, float, str]:
        first = next(iter((result.test.sampled or result.test.full).values()), math.nan)
        return (result.data, result.protocol, math.inf if math.isnan(first) else -first, result.label)

    return sorted(results, key=place)


def result_table(results: list[Result], metrics: Sequence[Metric]) -> Table:
    """One row per run; leaking rows are marked. Seconds are shown where they can be compared, on the same data."""
    sets = list(dict.fromkeys(r.data for r in results))
    several = len(sets) > 1
    drawn = "/".join(dict.fromkeys(str(r.protocol_options.candidates) for r in results if r.test.sampled))
    captions = {"sampled": f"against {drawn} sampled items", "full": "full: against all items"}
    rows: list[list[Cell]] = [
        [
            *([r.data] if several else []),
            r.shown_label,
            Text.assemble(r.protocol, (" (leaks)", "red")) if r.leaks else r.protocol,
            *[_number(_means(r.test, kind).get(name)) for kind, name in metrics],
            f"{r.selected_round}/{r.rounds}",
            *([] if several else [f"{r.seconds.per_round:.2f}"]),
            f"{r.bytes.up_per_client_round / 1e3:.1f}",
        ]
        for r in results
    ]
    from fedrec.federation.result import metric_title

    texts = [*(["data"] if several else []), "method", "protocol"]
    values = [f"full {metric_title(name)}" if kind == "full" else metric_title(name) for kind, name in metrics]
    return plain_table(
        [*texts, *values, "round", *([] if several else ["s/round"]), "KB up"],
        rows,
        texts=len(texts),
        title="Test results at the selected round" if several else f"{sets[0]}: test results at the selected round",
        caption="; ".join(captions[kind] for kind in dict.fromkeys(kind for kind, _ in metrics)),
    )


def method_table(shown: ResultTable) -> Table:
    """A table as a method wants it printed."""
    return plain_table(shown.columns, shown.rows, title=shown.title)


Titles = Callable[[str | int], str | None]
"""Gives the title of an item by its id, if it has one."""


def no_titles(item: str | int) -> None:
    """Where nothing is known of items."""


def ranking(found: Sequence[tuple[str | int, float]], title: str, titles: Titles = no_titles) -> Table:
    """Recommended items, best first; with their titles where there are any."""
    rows = [[str(item), str(rank), f"{score:.4f}"] for rank, (item, score) in enumerate(found, 1)]
    known = [titles(item) for item, _ in found]
    if not any(known):
        return plain_table(["item", "rank", "score"], rows, title=title)
    rows = [[row[0], name or "", *row[1:]] for row, name in zip(rows, known, strict=True)]
    return plain_table(["item", "title", "rank", "score"], rows, texts=2, title=title)


def _metrics(result: Result) -> tuple[Metric, ...]:
    """The first ones of the result's protocol."""
    return tuple((kind, name) for kind in ("sampled", "full") for name in list(_means(result.test, kind))[:2])


def _means(metrics: Metrics, ranking: str) -> dict[str, float]:
    return metrics.sampled if ranking == "sampled" else metrics.full


def _number(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.4f}"
