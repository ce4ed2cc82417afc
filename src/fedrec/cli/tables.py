"""Results as tables a newcomer understands."""

from __future__ import annotations

import math

from rich.markup import escape
from rich.table import Table

from fedrec.cli.common import out
from fedrec.federation.result import Metrics, Result, ResultTable, metric_title


def print_results(results: list[Result]) -> None:
    """The runs side by side, and the tables their methods want printed."""
    out.print(result_table(results))
    for result in results:
        for table in result.tables:
            out.print(method_table(table))


def result_table(results: list[Result]) -> Table:
    """One row per run with the first metrics of its protocol; leaking rows are marked."""
    sets = ", ".join(dict.fromkeys(r.data for r in results))
    metrics = [(kind, name) for kind in ("sampled", "full") for r in results for name in list(_means(r.test, kind))[:2]]
    metrics = list(dict.fromkeys(metrics))
    drawn = "/".join(dict.fromkeys(str(r.protocol_options.candidates) for r in results if r.test.sampled))
    captions = {"sampled": f"against {drawn} sampled items", "full": "full: against all items"}
    table = Table(
        title=f"{sets}: test results at the selected round",
        caption="; ".join(captions[kind] for kind in dict.fromkeys(kind for kind, _ in metrics)),
    )
    table.add_column("method", overflow="fold")
    table.add_column("protocol")
    for kind, name in metrics:
        table.add_column(f"full {metric_title(name)}" if kind == "full" else metric_title(name), justify="right")
    for name in ("round", "s/round", "KB up"):
        table.add_column(name, justify="right")
    for r in results:
        table.add_row(
            r.label,
            f"{r.protocol} [red](leaks)[/red]" if r.leaks else r.protocol,
            *[_number(_means(r.test, kind).get(name)) for kind, name in metrics],
            f"{r.selected_round}/{r.rounds}",
            f"{r.seconds.per_round:.2f}",
            f"{r.bytes.up_per_client_round / 1e3:.1f}",
        )
    return table


def method_table(shown: ResultTable) -> Table:
    """A table as a method wants it printed."""
    table = Table(title=escape(shown.title))
    for name in shown.columns:
        table.add_column(escape(name), justify="right")
    for row in shown.rows:
        table.add_row(*map(escape, row))
    return table


def _means(metrics: Metrics, ranking: str) -> dict[str, float]:
    return metrics.sampled if ranking == "sampled" else metrics.full


def _number(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.4f}"
