"""What share of the tables of merging clients came from the server, by how popular an item is."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from fedrec.api import load_run
from fedrec.errors import ConfigError
from fedrec.methods import rebuild
from fedrec.report.figure import Axis, Figure, Panel, Series, number
from fedrec.report.rows import Row, SavedRun, Section

PARTS, BINS = 10, 200


def merging_weights(section: Section) -> Figure | None:
    """One line per row whose clients merge, over tenths of the items by popularity."""
    panels = []
    for title, rows in section.panels:
        series = [found for row in rows if (found := _line(row)) is not None]
        if series:
            names = tuple(map(str, series[0].x))
            x = Axis("tenths of the items, rarest (1) to most popular", categories=names)
            panels.append(Panel(title, x, Axis("share from the server", share=True), tuple(series)))
    about = (
        "Of every row of a client's item table, the share it takes from the server (1: all, 0: the client keeps its own). "
        "Lines are means, bands hold the middle half of all rows of all clients; those to whom the server gave no table are left out."
    )
    return Figure("merging", "Merging weights", about, tuple(panels)) if panels else None


def merging_run(row: Row) -> SavedRun | None:
    """The first run of a row whose clients merge and whose model was kept."""
    for run in row.runs:
        if run.has_model and _merges(run):
            return run
    return None


def _merges(run: SavedRun) -> bool:
    try:
        return rebuild(run.result.method, run.result.config).merges
    except ConfigError:  # a method of a file of one's own: pages are drawn without running it
        return False


def _line(row: Row) -> Series | None:
    run = merging_run(row)
    if run is None:
        return None
    tally = shares(run)
    centre = (np.arange(BINS + 1)) / BINS
    counts = tally.sum(1)
    means = (tally * centre).sum(1) / counts
    below = tally.cumsum(1) / counts[:, None]
    low, high = (centre[(below >= part).argmax(1)] for part in (0.25, 0.75))
    names = map(str, range(1, len(tally) + 1))
    lows, highs = np.minimum(low, means), np.maximum(high, means)
    told = [tuple(number(float(value)) for value in values) for values in (means, lows, highs)]
    return Series(row.name, "line", tuple(names), told[0], row.colour, told[1], told[2])


def shares(run: SavedRun) -> NDArray[np.int64]:
    """[part, bin]: how many rows of clients' tables have which share from the server, by popularity of the item.

    Clients that take nothing at all are left out where others take something: the server gave them no table.
    """
    loaded = load_run(run.folder)
    items = loaded.split.data.n_items
    counts = np.bincount(loaded.split.training.positives.values, minlength=items)
    parts = min(PARTS, items)
    part = np.empty(items, np.int64)
    part[np.argsort(counts, kind="stable")] = np.arange(items) * parts // items
    offsets = torch.from_numpy(part * (BINS + 1))
    tally = torch.zeros(2, parts * (BINS + 1), dtype=torch.int64)
    for _, mixture in loaded.trainer.mixtures(torch.arange(loaded.split.data.n_users)):
        share = mixture.share.cpu()
        place = (share.clamp(0, 1) * BINS).round().long() + offsets
        for merges in (0, 1):
            chosen = place[(share > 0).any(1) == bool(merges)]
            tally[merges] += torch.bincount(chosen.reshape(-1), minlength=tally.shape[1])
    found: NDArray[np.int64] = tally[int(bool(tally[1].any()))].reshape(parts, BINS + 1).numpy()
    return found
