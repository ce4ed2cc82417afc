"""A split, and on stderr what it is doing where that takes long."""

from __future__ import annotations

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from fedrec.cli.common import err
from fedrec.data import Interactions
from fedrec.protocol import Protocol, Split

LONG = 1_000_000
"""Rows from which on a split takes seconds."""


def split_data(protocol: Protocol, data: Interactions, seed: int, quiet: bool = False) -> Split:
    """The split of ``data``; large data get a bar on a terminal, and a line elsewhere."""
    if quiet or len(data) < LONG:
        return protocol.split(data, seed)
    if not err.is_terminal:
        err.print(f"splitting {len(data):,} rows")
        return protocol.split(data, seed)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("splitting", total=None)

        def show(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total, refresh=True)

        return protocol.split(data, seed, show)
