"""Every figure: a function from a section to a figure, or to none where the section has nothing for it."""

from __future__ import annotations

from fedrec.report.figure import Figure
from fedrec.report.figures.bars import bars
from fedrec.report.figures.convergence import convergence
from fedrec.report.figures.cost import by_bytes, by_epsilon
from fedrec.report.figures.item_tables import item_tables
from fedrec.report.figures.merging import merging_weights
from fedrec.report.figures.people import by_size, distribution, named_groups
from fedrec.report.figures.sweep import over_settings, sparsity_over_settings
from fedrec.report.rows import Section


def figures(section: Section, *, models: bool = True, user: str | None = None) -> list[Figure]:
    """All that the section has something for; ``models`` of runs are read for what only they know."""
    found = [*bars(section), *over_settings(section), sparsity_over_settings(section), convergence(section)]
    found += [by_size(section), named_groups(section), distribution(section)]
    if models:
        found += [merging_weights(section), *item_tables(section, user)]
    return [figure for figure in [*found, by_bytes(section), by_epsilon(section)] if figure is not None]
