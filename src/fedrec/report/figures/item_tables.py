"""The own, the downloaded and the merged item table of one client, laid out in the plane (t-SNE)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrec.api import load_run
from fedrec.errors import ConfigError
from fedrec.report.figure import Axis, Figure, Panel, Series, number
from fedrec.report.figures.merging import merging_run
from fedrec.report.rows import Row, Section
from fedrec.running.run import Run

HIDDEN = Axis("", hidden=True)


def item_tables(section: Section, user: str | None) -> list[Figure]:
    """One figure per row whose clients merge; of a study that kept its models, or of a user that was asked for."""
    if user is None and section.key == "runs":
        return []
    found: list[Figure] = []
    for row in section.rows:
        figure = _of(row, user, len(found) + 1)
        if figure is not None:
            found.append(figure)
    return found


def _of(row: Row, user: str | None, number: int) -> Figure | None:
    saved = merging_run(row)
    if saved is None:
        return None
    run = load_run(saved.folder)
    client = _client(run, user)
    _, mixture = next(iter(run.trainer.mixtures(torch.tensor([client]))))
    interacted = np.zeros(run.split.data.n_items, bool)
    interacted[run.split.training.positives[client]] = True
    tables = (("own", mixture.own), ("from the server", mixture.server), ("merged", mixture.merged))
    panels = tuple(_panel(title, table[0], interacted) for title, table in tables)
    about = (
        f"Every point is an item of one client's table under {row.name}, laid out by "
        f"t-SNE so that similar items lie together. Marked: its {int(interacted.sum())} training items. Distances between groups "
        "mean nothing."
    )
    return Figure(
        f"tables-{number}",
        f"Item tables of one client: {row.name} ({row.record.data}, {row.record.protocol})",
        about,
        panels,
    )


def _client(run: Run, user: str | None) -> int:
    """The one asked for, or, among those that merge, the one with the median number of training items."""
    if user is not None:
        return run.client(user)
    clients = _merging(run)
    counts = run.split.training.positives.counts[clients]
    return int(clients[np.argsort(counts, kind="stable")[len(counts) // 2]])


def _merging(run: Run) -> NDArray[np.int64]:
    """Clients that take something from the server; all where nobody does."""
    every = torch.arange(run.split.data.n_users)
    taking = [who[(mixture.share > 0).any(1).cpu()] for who, mixture in run.trainer.mixtures(every)]
    found = torch.cat(taking).sort().values if taking else every
    return (found if len(found) else every).numpy()


def _panel(title: str, table: Tensor, interacted: NDArray[np.bool_]) -> Panel:
    places = plane(table.double().numpy())
    return Panel(
        title, HIDDEN, HIDDEN,
        (_points("other items", places[~interacted], None), _points("training items", places[interacted], 1)),
    )  # fmt: skip


def _points(name: str, places: NDArray[np.float64], colour: int | None) -> Series:
    x, y = ([number(round(float(v), 2)) for v in places[:, axis]] for axis in (0, 1))
    return Series(name, "point", tuple(v for v in x if v is not None), tuple(y), colour, faint=colour is None)


def plane(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Items [m, d] in the plane [m, 2], the same for equal tables."""
    try:
        from sklearn.manifold import TSNE
    except ImportError:
        raise ConfigError("figures of item tables need scikit-learn: pip install 'fedrec[report]'.") from None
    if len(table) < 5 or not table.std():
        return np.zeros((len(table), 2))
    found = TSNE(init="random", random_state=0, perplexity=min(30, (len(table) - 1) / 3)).fit_transform(table)
    return np.asarray(found, np.float64)
