"""All training interactions on one device, and the batches an epoch is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from fedrec.data.training import TrainingView
from fedrec.errors import ConfigError
from fedrec.sampling import streams
from fedrec.sampling.streams import Purpose

Sampling = Literal["interaction", "user_uniform"]
Triple = tuple[Tensor, Tensor, Tensor]
"""Users [b], positives [b], negatives [b, k]."""
Made = TypeVar("Made")


class Observed:
    """The training view as tensors: rows as the protocol keeps them, and each user's distinct items."""

    def __init__(self, view: TrainingView, device: torch.device) -> None:
        """Move the view to ``device``."""
        self.view, self.n_users, self.n_items, self.device = view, view.n_clients, view.n_items, device
        rows = view.positives.owners * view.n_items + view.positives.values
        pairs = np.unique(rows)
        self.users, self.items = self._columns(rows)
        self.pair_users, self.pair_items = self._columns(pairs)
        counts = torch.from_numpy(np.bincount(pairs // view.n_items, minlength=view.n_clients))
        self.counts = counts.to(device)  # distinct items per user
        self.starts = (counts.cumsum(0) - counts).to(device)
        # Ascending inside each user, so ascending overall: membership is a binary search.
        excluded = view.excluded.owners * view.n_items + view.excluded.values
        self._excluded = torch.from_numpy(excluded).to(device)
        self._full = np.nonzero((view.excluded.counts >= view.n_items) & (view.positives.counts > 0))[0]

        self._made: dict[str, Any] = {}

    def once(self, name: str, make: Callable[[Observed], Made]) -> Made:
        """What ``make`` makes of these interactions, such as a graph; made when it is first asked for."""
        if name not in self._made:
            self._made[name] = make(self)
        made: Made = self._made[name]
        return made

    def _columns(self, pairs: np.ndarray) -> tuple[Tensor, Tensor]:
        on_device = torch.from_numpy(pairs).to(self.device)
        return on_device // self.n_items, on_device % self.n_items

    def histories(self, clients: Tensor) -> tuple[Tensor, Tensor]:
        """Distinct items of these users one after the other, and where each user's begin."""
        chosen = clients.to(self.device)
        counts = self.counts[chosen]
        begins = counts.cumsum(0) - counts
        owner = torch.repeat_interleave(torch.arange(len(chosen), device=self.device), counts)
        position = torch.arange(len(owner), device=self.device) - begins[owner] + self.starts[chosen][owner]
        return self.pair_items[position], begins

    def times(self, weights: Tensor, clients: Tensor) -> Tensor:
        """x_u W for these users: the sum of the rows of ``weights`` [m, k] that belong to their items."""
        items, begins = self.histories(clients)
        return embedding_bag(items, weights, begins, mode="sum")

    def negatives(self, users: Tensor, per_row: int, seed: int, epoch: int) -> Tensor:
        """Items [len(users), per_row] drawn uniformly outside each user's excluded ones."""
        if len(self._full):
            raise ConfigError(
                f"user {self._full[0]} has interacted with all {self.n_items} items, so no negative can be drawn; "
                "filter the data."
            )
        key = self._key(Purpose.NEGATIVES, seed, epoch)
        index = torch.arange(len(users) * per_row, device=self.device)
        owner = users.repeat_interleave(per_row)
        drawn = streams.below(key, index, self.n_items)
        open_ = index
        for attempt in range(1, 1 << 30):
            refused = self._is_excluded(owner[open_], drawn[open_])
            open_ = open_[refused]
            if not len(open_):
                break
            drawn[open_] = streams.below(key, open_ + (attempt << 32), self.n_items)
        return drawn.view(-1, per_row)

    def _is_excluded(self, users: Tensor, items: Tensor) -> Tensor:
        pair = users * self.n_items + items
        near = torch.searchsorted(self._excluded, pair).clamp_(max=len(self._excluded) - 1)
        return self._excluded[near] == pair

    def _key(self, purpose: Purpose, seed: int, epoch: int) -> Tensor:
        return streams.keys(seed, purpose, epoch, torch.zeros(1, dtype=torch.int64, device=self.device))

    def rows(self, seed: int, epoch: int, sampling: Sampling = "interaction") -> tuple[Tensor, Tensor]:
        """Users and positives of one epoch in random order: every row once, or as many rows of random users."""
        key = self._key(Purpose.SHUFFLE, seed, epoch)
        index = torch.arange(len(self.users), device=self.device)
        if sampling == "interaction":
            order = torch.argsort(streams.bits(key, index), stable=True)
            return self.users[order], self.items[order]
        able = torch.nonzero(self.counts)[:, 0]
        users = able[streams.below(key, index, len(able))]
        share = streams.uniform(streams.child(key, 1), index)
        return users, self.pair_items[self.starts[users] + (share * self.counts[users]).long()]

    def batches(
        self, size: int, negatives: int, *, seed: int, epoch: int, sampling: Sampling = "interaction"
    ) -> Iterator[Triple]:
        """One epoch in batches of ``size`` positives, each with its own fresh negatives; drawn at once, on the device."""
        users, positives = self.rows(seed, epoch, sampling)
        drawn = self.negatives(users, negatives, seed, epoch)
        yield from zip(*(torch.split(values, size) for values in (users, positives, drawn)), strict=True)
