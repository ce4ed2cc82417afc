"""Results as tables a newcomer understands."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from fedrec.cli.common import out

Result = dict[str, Any]


def print_results(results: list[Result]) -> None:
    """The runs side by side, and the sizes of clients where a run has several."""
    out.print(result_table(results))
    for result in results:
        if "sizes" in result.get("diagnostics", {}):
            out.print(_group_table(result))


def result_table(results: list[Result]) -> Table:
    """One row per run with the first metrics of its protocol; leaking rows are marked."""
    sets = ", ".join(dict.fromkeys(r["data"] for r in results))
    metrics = [(kind, name) for kind in ("sampled", "full") for r in results for name in list(r["test"][kind])[:2]]
    metrics = list(dict.fromkeys(metrics))
    drawn = "/".join(dict.fromkeys(str(r["protocol_options"]["candidates"]) for r in results if r["test"]["sampled"]))
    captions = {"sampled": f"against {drawn} sampled items", "full": "full: against all items"}
    table = Table(
        title=f"{sets}: test results at the selected round",
        caption="; ".join(captions[kind] for kind in dict.fromkeys(kind for kind, _ in metrics)),
    )
    table.add_column("method", overflow="fold")
    table.add_column("protocol")
    for kind, name in metrics:
        table.add_column(f"full {_title(name)}" if kind == "full" else _title(name), justify="right")
    for name in ("round", "s/round", "KB up"):
        table.add_column(name, justify="right")
    for r in results:
        table.add_row(
            r.get("label", r["method"]),
            f"{r['protocol']} [red](leaks)[/red]" if r["leaks"] else r["protocol"],
            *[_number(r["test"][kind].get(name)) for kind, name in metrics],
            f"{r['selected_round']}/{r['rounds']}",
            f"{r['seconds']['per_round']:.2f}",
            f"{r['bytes']['up_per_client_round'] / 1e3:.1f}",
        )
    return table


def _group_table(result: Result) -> Table:
    """Who got which size, how well each does and what it sends."""
    shown = result["diagnostics"]
    metrics = list(result["test"]["full"])[:2]
    table = Table(title=f"{result.get('label', result['method'])}: sizes by {shown['sizing']}")
    for name in ("size", "clients", "training items", "trains", *map(_title, metrics), "KB up", "KB down"):
        table.add_column(name, justify="right")
    for name, group in shown["sizes"].items():
        items = group["training_items"]
        found = result["client_groups"].get(name, {}).get("test", {}).get("full", {})
        table.add_row(
            name,
            f"{group['clients']:,}",
            f"{items[0]} to {items[1]}" if items else "-",
            str(group["trains_size"]),
            *[_number(found.get(metric)) for metric in metrics],
            *[f"{group[f'bytes_{way}_per_visit'] / 1e3:.1f}" for way in ("up", "down")],
        )
    return table


def _title(metric: str) -> str:
    name, _, k = metric.partition("@")
    return f"{name.upper() if name in ('hr', 'ndcg') else name.capitalize()}@{k}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
