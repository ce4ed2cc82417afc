"""A split, and on stderr what it is doing where that takes long."""

from __future__ import annotations

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from fedrec.cli.common import err
from fedrec.data import Interactions
from fedrec.data.filtered import Filtered
from fedrec.protocol import Protocol, Split

LONG = 1_000_000
"""Rows from which on a split takes seconds."""


def split_data(protocol: Protocol, data: Interactions, seed: int, quiet: bool = False) -> Split:
    """The split of ``data``, and a line that says whom it leaves out; large data get a bar on a terminal, and a line elsewhere."""
    split = _split(protocol, data, seed, quiet)
    tell_filtered(split, quiet)
    return split


def tell_filtered(split: Split, quiet: bool = False) -> None:
    """Say what the protocol's filter kept; that nothing was dropped need not be said where it is to be quiet."""
    if split.filtered is not None and (split.filtered.dropped.rows or not quiet):
        err.print(filter_line(split.protocol.name, split.filtered), soft_wrap=True)


def filter_line(protocol: str, filtered: Filtered) -> str:
    """What a protocol's filter kept and dropped, and how to change it."""
    options = dict.fromkeys(reason.option for reason in filtered.reasons if reason.option)
    how = f"; change it with --protocol-set {' or '.join(map(_example, options))}" if options else ""
    return f"{protocol}: {filtered}{how}"


def _example(option: str) -> str:
    return {"duplicates": "duplicates=keep"}.get(option, f"{option}=N")


def _split(protocol: Protocol, data: Interactions, seed: int, quiet: bool = False) -> Split:
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
