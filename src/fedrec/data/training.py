"""What a trainer may see: the training rows of every client and the pool its negatives are drawn from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Ragged:
    """One list of item numbers per client, stored as offsets and values."""

    offsets: NDArray[np.int64]  # [n + 1]
    values: NDArray[np.int32]

    def __post_init__(self) -> None:
        self.offsets.setflags(write=False)
        self.values.setflags(write=False)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, client: int) -> NDArray[np.int32]:
        return self.values[self.offsets[client] : self.offsets[client + 1]]

    @property
    def counts(self) -> NDArray[np.int64]:
        """Length of every list."""
        return np.diff(self.offsets)

    @property
    def owners(self) -> NDArray[np.int64]:
        """Client of every value."""
        return np.repeat(np.arange(len(self)), self.counts)

    @staticmethod
    def build(owners: NDArray[np.integer], values: NDArray[np.integer], n: int) -> Ragged:
        """Group ``values`` by ``owners`` (0..n-1), keeping the given order inside each group."""
        order = np.argsort(owners, kind="stable")
        offsets = np.zeros(n + 1, np.int64)
        np.cumsum(np.bincount(owners, minlength=n), out=offsets[1:])
        return Ragged(offsets, np.ascontiguousarray(values[order], dtype=np.int32))


@dataclass(frozen=True, eq=False)
class TrainingView:
    """All a trainer is handed. Held-out items are not in it; ``excluded`` says which items are never negatives.

    Under an honest protocol ``excluded`` is exactly the set of a client's training items. A leaking protocol also
    lists the held-out items there, which is the leak.
    """

    n_clients: int
    n_items: int
    positives: Ragged  # training items, oldest first; repeated rows stay repeated where the protocol keeps them
    excluded: Ragged  # ascending, distinct
    history: Ragged | None = None  # distinct training items, oldest first, equal times shuffled; None without time

    def own_list(self, client: int) -> NDArray[np.int32]:
        """Distinct training items of a client, oldest first where the data have time."""
        return self.history[client] if self.history is not None else np.unique(self.positives[client])

    def own_items(self, clients: NDArray[np.int64]) -> NDArray[np.bool_]:
        """[c, m]: which training items each of these clients has."""
        counts = self.positives.counts[clients]
        rows = np.repeat(np.arange(len(clients)), counts)
        within = np.arange(len(rows)) - np.repeat(counts.cumsum() - counts, counts)
        found = np.zeros((len(clients), self.n_items), np.bool_)
        found[rows, self.positives.values[self.positives.offsets[clients][rows] + within]] = True
        return found
