"""Private client state: one preallocated tensor per name, indexable by client."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor

from fedrec.compute import rows as row_copies
from fedrec.errors import FedrecError
from fedrec.federation.payload import State
from fedrec.sampling.samples import Samples


class ClientStore:
    """The state of all clients, ordered so that the usual cohorts are contiguous and need no copy."""

    def __init__(
        self, order: Tensor, folder: Path | None = None, *, half: bool = False, numbers: int | None = None
    ) -> None:
        """``order`` lists the clients in storage order; with ``folder`` tensors live in memory-mapped files there.

        ``half`` keeps item tables, the tensors of rows and columns per client, in half precision; what is read of them is a
        copy in full precision. ``numbers`` is how many clients there are in all, where only some of them have their state here.
        """
        self.half = half
        self.clients = len(order)
        self.row = torch.full((numbers if numbers is not None else len(order),), -1, dtype=torch.int64)
        self.row[order] = torch.arange(len(order))
        self.folder = folder
        self.tensors: State = {}

    def fill(self, clients: Tensor, state: State) -> None:
        """Set the state of some clients, allocating on first use."""
        for name, values in state.items():
            if name not in self.tensors:
                self.tensors[name] = self._allocate(name, values)
        self.at(clients).write(state)

    def _allocate(self, name: str, like: Tensor) -> Tensor:
        shape, dtype = (self.clients, *like.shape[1:]), stored_type(like, self.half)
        if self.folder is None:
            return torch.empty(shape, dtype=dtype, device=like.device)
        size, path = torch.Size(shape).numel(), self.folder / f"{name}.bin"
        _reserve(path, size * dtype.itemsize)
        return torch.from_file(str(path), shared=True, size=size, dtype=dtype).view(shape)

    def at(self, clients: Tensor) -> ClientState:
        """The state of these clients, to read and to write."""
        return ClientState(self.tensors, self.row[clients.cpu()])

    @property
    def nbytes(self) -> int:
        """Size of everything stored."""
        return sum(t.numel() * t.element_size() for t in self.tensors.values())


def stored_type(values: Tensor, half: bool) -> torch.dtype:
    """How values of clients [c, ...] are stored: with ``half``, item tables [c, m, d] in half precision."""
    return torch.float16 if half and values.dim() == 3 and values.dtype == torch.float32 else values.dtype


def whole(values: Tensor) -> Tensor:
    """What is stored in half precision in full precision."""
    return values.float() if values.dtype == torch.float16 else values


def _reserve(path: Path, size: int) -> None:
    """Take the space now: a mapped file that finds its disk full later ends the process without a word."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            if size:
                os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise FedrecError(
            f"{path} cannot take {size / 1e9:.3g} GB of client state ({error.strerror}); make room, choose another run "
            "folder, or keep client state in memory."
        ) from None


def span(rows: Tensor) -> slice | None:
    """The slice that selects these rows, or None if they do not follow each other."""
    first = int(rows[0]) if len(rows) else 0
    contiguous = bool((rows == torch.arange(first, first + len(rows))).all())
    return slice(first, first + len(rows)) if contiguous else None


def select(values: Tensor, rows: Tensor) -> Tensor:
    """Rows of ``values``: a view where they follow each other, else a copy."""
    found = span(rows)
    return values[found] if found is not None else values.index_select(0, rows.to(values.device))


class ClientState:
    """The private state of one cohort. Reading a name gives [c, ...]; writing it changes the store."""

    def __init__(self, tensors: State, rows: Tensor) -> None:
        """``rows`` are those of the cohort in ``tensors``."""
        self._tensors = tensors
        self._rows = rows
        self._slice = span(rows)

        self._instead: State = {}

    def replaced(self, state: State) -> ClientState:
        """The same clients with other values, which the store never sees; to read only."""
        other = ClientState(self._tensors, self._rows)
        other._instead = state
        return other

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def __getitem__(self, name: str) -> Tensor:
        """The values of these clients; a view of the store where they are contiguous, else a copy. Do not change it."""
        if name in self._instead:
            return self._instead[name]
        stored = self._tensors[name]
        if self._slice is not None:
            return whole(stored[self._slice])
        return whole(stored.index_select(0, self._rows.to(stored.device)))

    def __setitem__(self, name: str, values: Tensor) -> None:
        stored = self._tensors[name]
        if self._slice is not None:
            stored[self._slice] = values
        else:
            stored.index_copy_(0, self._rows.to(stored.device), values.to(stored.dtype))

    def write(self, state: State) -> None:
        """Set several names."""
        for name, values in state.items():
            self[name] = values

    def take(self, name: str, samples: Samples) -> Tensor:
        """The touched rows of a personal item table, [c, R, d]; padding repeats row 0."""
        stored = self._tensors[name]
        return whole(row_copies.take(stored, samples.rows, self._rows.to(stored.device)))

    def put(self, name: str, samples: Samples, block: Tensor) -> None:
        """Write back the touched rows of a personal item table."""
        stored = self._tensors[name]
        row_copies.put(stored, samples.rows, self._rows.to(stored.device), samples.row_counts, block.to(stored.dtype))
