"""The cells of a study: which runs its rows need on which data sets, under which protocols, with which seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedrec.data.interactions import Interactions
from fedrec.data.loading import load_any
from fedrec.errors import FedrecError
from fedrec.protocol import preset
from fedrec.studies.cell import Cell, Planned, SplitFacts, planned
from fedrec.studies.study import Row, Study, combinations


@dataclass
class GridRow:
    """A row of the table: what is run for it, per combination of settings among which validation chooses."""

    row: Row
    label: str
    data: str
    protocol: str
    sweep: dict[str, Any]
    options: list[tuple[dict[str, Any], list[Planned]]] = field(default_factory=list)
    """Settings to choose from, and their cells, one per seed."""

    @property
    def cells(self) -> Iterator[Planned]:
        """All of them."""
        return (cell for _, cells in self.options for cell in cells)


@dataclass(frozen=True)
class Wanted:
    """Which part of a study is wanted."""

    data: tuple[str, ...]
    protocols: tuple[str, ...]
    seeds: tuple[int, ...]
    rounds: int | None = None
    """Instead of those of the study; rows that have fewer keep theirs."""
    rows: tuple[str, ...] = ()
    """Labels of rows; empty: all."""


def grid_of(
    study: Study,
    wanted: Wanted,
    cells: Path,
    data_dir: str | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> list[GridRow]:
    """All rows with their cells under the folder ``cells``; ``tell`` hears which split is made."""
    splits = _Splits(data_dir, tell)
    rows: list[GridRow] = []
    for data in wanted.data:
        for protocol in wanted.protocols:
            for row in study.rows:
                if _wanted(row, data, protocol, wanted):
                    rows += _rows(study, row, data, protocol, wanted, splits, cells)
    return rows


def _wanted(row: Row, data: str, protocol: str, wanted: Wanted) -> bool:
    """Whether a row is asked for and has this data set and protocol; those the study does not know are for rows without a choice."""
    asked = not wanted.rows or row.label in wanted.rows
    return asked and data in (row.data or (data,)) and protocol in (row.protocols or (protocol,))


def _rows(
    study: Study, row: Row, data: str, protocol: str, wanted: Wanted, splits: _Splits, cells: Path
) -> Iterator[GridRow]:
    for sweep in combinations(row.sweep):
        label = ", ".join([row.label, *(f"{name}={_word(value)}" for name, value in sweep.items())])
        found = GridRow(row, label, data, protocol, sweep)
        for chosen in combinations(row.choose if row.choose is not None else study.choose):
            settings = row.settings | row.under.get(protocol, {}) | sweep | chosen
            base = Cell(
                method=row.method, settings=settings, merge=row.merge, privacy=row.privacy, data=data, protocol=protocol,
                seed=0, rounds=_rounds(study, row, protocol, wanted), keep_model=row.keep_model,
                evaluate_every=1 if preset(protocol).select_on == "test" else row.evaluate_every or study.evaluate_every,
            )  # fmt: skip
            every = [base.model_copy(update={"seed": seed}) for seed in wanted.seeds]
            found.options.append((chosen, [splits.planned(cell, label, cells) for cell in every]))
        yield found


def _rounds(study: Study, row: Row, protocol: str, wanted: Wanted) -> int | None:
    usual = study.rounds if protocol == study.protocols[0] else None
    if wanted.rounds is None:
        return usual if row.rounds is None else row.rounds
    return wanted.rounds if row.rounds is None else min(row.rounds, wanted.rounds)


def _word(value: Any) -> str:
    return (
        "[" + ",".join(map(_word, value)) + "]"
        if isinstance(value, Sequence) and not isinstance(value, str)
        else str(value)
    )


class _Splits:
    """Facts about splits, each made once; what cannot be had is said once per cell."""

    def __init__(self, data_dir: str | None, tell: Callable[[str], None]) -> None:
        self._data_dir, self._tell = data_dir, tell
        self._facts: dict[tuple[str, str, int], SplitFacts | FedrecError] = {}
        self._data: tuple[str, Interactions] | None = None

    def planned(self, cell: Cell, label: str, cells: Path) -> Planned:
        """The cell with its place, or with what is wrong with it."""
        facts = self._of(cell.data, cell.protocol, cell.seed)
        if isinstance(facts, FedrecError):
            return Planned(cell, label, wrong=str(facts))
        try:
            return planned(cell, label, facts, cells)
        except FedrecError as error:
            return Planned(cell, label, wrong=str(error))

    def _of(self, data: str, protocol: str, seed: int) -> SplitFacts | FedrecError:
        key = (data, protocol, seed)
        if key not in self._facts:
            try:
                self._tell(f"splitting {data} ({protocol}, seed {seed})")
                split = preset(protocol).split(self._load(data), seed)
                self._facts[key] = SplitFacts(split.hash, int(split.training.positives.counts.sum()), split.order_hash)
            except FedrecError as error:
                self._facts[key] = error
        return self._facts[key]

    def _load(self, name: str) -> Interactions:
        if self._data is None or self._data[0] != name:
            self._data = (name, load_any(name, self._data_dir)[0])
        return self._data[1]
