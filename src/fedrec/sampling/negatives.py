"""Draws the negatives of a round: distinct items per training positive, outside the client's excluded list.

Slot ``s`` of positive ``j`` tries candidates t = 0, 1, ... of the client's stream, at index
``t * 2**32 + (j * negatives + s)``, and keeps the first one that is not excluded and was not kept by an
earlier slot of the same positive. So a draw depends on (seed, round, client) alone.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedrec.compute import dispatch
from fedrec.compute.cpu import for_clients
from fedrec.data.training import Ragged, TrainingView
from fedrec.errors import ConfigError
from fedrec.sampling import streams
from fedrec.sampling.cpu_negatives import draw_range
from fedrec.sampling.cpu_streams import stream_of
from fedrec.sampling.samples import Samples
from fedrec.sampling.streams import Purpose


class Sampler:
    """Draws samples of any cohort; holds the view's arrays on one device."""

    def __init__(self, view: TrainingView, device: torch.device | str = "cpu", *, reference: bool = False) -> None:
        """Move the view to ``device``; ``reference`` draws with torch where compiled code would be used."""
        self.view = view
        self.device = torch.device(device)
        self._kind = None if reference else dispatch.compiled_on(self.device)
        self._positive_counts = torch.from_numpy(view.positives.counts)
        self._pools = torch.from_numpy(view.n_items - view.excluded.counts)
        if self._kind == "gpu":
            self._lists = [(self._there(x.offsets), self._there(x.values)) for x in (view.positives, view.excluded)]
        elif self._kind is None:
            self._offsets = torch.from_numpy(view.positives.offsets.copy()).to(self.device)
            self._values = torch.from_numpy(view.positives.values.astype(np.int64)).to(self.device)
            # Ascending inside each client, so ascending overall: membership is a binary search.
            pairs = view.excluded.owners * view.n_items + view.excluded.values
            self._excluded = torch.from_numpy(pairs).to(self.device)

    def _there(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(values.copy()).to(self.device)

    def draw(self, clients: Tensor, *, negatives: int, seed: int, round: int) -> Samples:
        """Draw ``negatives`` items for every training positive of ``clients`` (int64, any order)."""
        numbers = clients.to("cpu", torch.int64)
        self._check(numbers, negatives)
        draw = {"cpu": self._draw_cpu, "gpu": self._draw_gpu, None: self._draw_torch}[self._kind]
        return draw(numbers, self._positive_counts[numbers], negatives, seed, round)

    def _check(self, clients: Tensor, negatives: int) -> None:
        if negatives < 0:
            raise ConfigError(f"negatives is {negatives}; set it to 0 or more.")
        if len(clients) and not 0 <= int(clients.min()) <= int(clients.max()) < self.view.n_clients:
            raise ConfigError(f"a cohort names clients outside 0..{self.view.n_clients - 1}; check the client numbers.")
        short = clients[(self._pools[clients] < negatives) & (self._positive_counts[clients] > 0)]
        if len(short):
            client = int(short[0])
            raise ConfigError(
                f"client {client} has {int(self._pools[client])} items to draw negatives from, but "
                f"{negatives} distinct ones are needed per positive; lower the number of negatives or filter the data."
            )

    def _draw_cpu(self, clients: Tensor, positives: Tensor, negatives: int, seed: int, round: int) -> Samples:
        view, c = self.view, len(clients)
        counts = positives * (1 + negatives)
        width = int(counts.max()) if c else 0
        items, slots = torch.zeros(c, width, dtype=torch.int32), torch.zeros(c, width, dtype=torch.int32)
        labels = torch.zeros(c, width)
        rows = torch.zeros(c, min(width, view.n_items), dtype=torch.int32)
        row_counts = torch.zeros(c, dtype=torch.int64)
        inputs = (clients.numpy(), *_arrays(view.positives), *_arrays(view.excluded), view.n_items, negatives)
        outputs = tuple(out.numpy() for out in (items, labels, slots, rows, row_counts))
        stream = stream_of(seed, round)
        for_clients(lambda first, last: draw_range(first, last, *inputs, *stream, *outputs), counts.numpy(), unit=25)
        rows = rows[:, : int(row_counts.max()) if c else 0].contiguous()
        return Samples(clients, items, labels, slots, counts, rows, row_counts, positives, seed, round)

    def _draw_gpu(self, clients: Tensor, positives: Tensor, negatives: int, seed: int, round: int) -> Samples:
        from fedrec.sampling.gpu_negatives import draw_samples

        width = int(positives.max()) * (1 + negatives) if len(clients) else 0
        clients, positives = clients.to(self.device), positives.to(self.device)
        counts, keys = positives * (1 + negatives), streams.keys(seed, Purpose.NEGATIVES, round, clients)
        most = int(self.view.excluded.counts.max(initial=0))
        items, labels, slots, rows, row_counts = draw_samples(
            clients, keys, counts, self._lists[0], self._lists[1],
            n_items=self.view.n_items, negatives=negatives, width=width, most_excluded=most,
        )  # fmt: skip
        return Samples(clients, items, labels, slots, counts, rows, row_counts, positives, seed, round)

    def _draw_torch(self, clients: Tensor, positives: Tensor, negatives: int, seed: int, round: int) -> Samples:
        clients, positives = clients.to(self.device), positives.to(self.device)
        c, m = len(clients), self.view.n_items
        owner = torch.repeat_interleave(torch.arange(c, device=self.device), positives)  # of every positive
        number = torch.arange(len(owner), device=self.device) - (positives.cumsum(0) - positives)[owner]
        drawn = torch.empty(len(owner), 1 + negatives, dtype=torch.int64, device=self.device)
        drawn[:, 0] = self._values[self._offsets[clients[owner]] + number]
        keys = streams.keys(seed, Purpose.NEGATIVES, round, clients)[owner]
        for slot in range(negatives):
            index = number * negatives + slot
            open_ = torch.arange(len(owner), device=self.device)
            while len(open_):
                item = streams.below(keys[open_], index[open_], m)
                drawn[open_, 1 + slot] = item
                refused = self._is_excluded(clients[owner[open_]], item)
                refused |= (drawn[open_, 1 : 1 + slot] == item[:, None]).any(1)
                open_ = open_[refused]
                index[open_] += 1 << 32
        return self._pad(clients, positives, owner, number, drawn, seed, round)

    def _is_excluded(self, client: Tensor, item: Tensor) -> Tensor:
        if not len(self._excluded):
            return torch.zeros_like(item, dtype=torch.bool)
        pair = client * self.view.n_items + item
        near = torch.searchsorted(self._excluded, pair).clamp(max=len(self._excluded) - 1)
        return self._excluded[near] == pair

    def _pad(
        self,
        clients: Tensor,
        positives: Tensor,
        owner: Tensor,
        number: Tensor,
        drawn: Tensor,
        seed: int,
        round: int,
    ) -> Samples:
        c, m, group = len(clients), self.view.n_items, drawn.shape[1]
        counts = positives * group
        width = int(counts.max()) if c else 0
        pairs, inverse = torch.unique(owner[:, None] * m + drawn, return_inverse=True)
        row_owner = pairs // m
        row_counts = torch.bincount(row_owner, minlength=c)
        row_starts = row_counts.cumsum(0) - row_counts
        place = torch.arange(group, device=self.device) + number[:, None] * group + owner[:, None] * width

        def padded(values: Tensor, dtype: torch.dtype) -> Tensor:
            out = torch.zeros(c * width, dtype=dtype, device=self.device)
            out[place.flatten()] = values.flatten().to(dtype)
            return out.view(c, width)

        rows = torch.zeros(c, int(row_counts.max()) if c else 0, dtype=torch.int32, device=self.device)
        rows[row_owner, torch.arange(len(pairs), device=self.device) - row_starts[row_owner]] = (pairs % m).int()
        labels = torch.zeros_like(drawn)
        labels[:, 0] = 1
        return Samples(
            clients=clients,
            items=padded(drawn, torch.int32),
            labels=padded(labels, torch.float32),
            slots=padded(inverse - row_starts[owner][:, None], torch.int32),
            counts=counts,
            rows=rows,
            row_counts=row_counts,
            positives=positives,
            seed=seed,
            round=round,
        )


def _arrays(lists: Ragged) -> tuple[np.ndarray, np.ndarray]:
    return lists.offsets, lists.values
