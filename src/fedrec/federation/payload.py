"""What crosses an arrow: named arrays with a leading client axis, and how many bytes they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from fedrec.errors import ConfigError

State = dict[str, Tensor]
Found = TypeVar("Found")


@dataclass(frozen=True, eq=False)
class RowUpdate:
    """Change of the rows of an item table that a client touched; beyond ``counts`` the values are zero."""

    rows: Tensor  # [c, R] int32: items
    counts: Tensor  # [c] int64: valid rows per client
    values: Tensor  # [c, R, d]
    n_items: int

    @property
    def valid(self) -> Tensor:
        """[c, R]: which entries are real rows."""
        return torch.arange(self.rows.shape[1], device=self.rows.device) < self.counts[:, None]

    @property
    def nbytes(self) -> Tensor:
        """Bytes of each client's rows, with their indices, [c] int64."""
        return self.counts * (self.values.shape[2] * self.values.element_size() + self.rows.element_size())

    def flat(self) -> tuple[Tensor, Tensor]:
        """Items [k] and values [k, d] of all real rows of all clients."""
        valid = self.valid
        return self.rows[valid].long(), self.values[valid]

    def dense(self) -> Tensor:
        """The whole table of changes, [c, m, d]."""
        c, _, d = self.values.shape
        return self.move(self.values.new_zeros(c, self.n_items, d))

    def move(self, table: Tensor) -> Tensor:
        """Add the changes to tables [c, m, d], in place."""
        place = torch.arange(len(table), device=table.device)[:, None] * self.n_items + self.rows
        valid = self.valid
        table.view(-1, table.shape[2]).index_add_(0, place[valid], self.values[valid])
        return table


@dataclass(frozen=True, eq=False)
class Table:
    """A client's whole item table. A privacy stage can work on it only against a table the server already knows."""

    value: Tensor  # [c, m, d]
    known: Tensor | None = None  # [c, m, d]: what the server sent, or the common initial table

    @property
    def numbers(self) -> int:
        """How many numbers one client sends."""
        return self.value[:1].numel()


@dataclass(frozen=True, eq=False)
class Gram(Table):
    """The m x m products of a table's rows, held here as the table, which is all a server's sum needs."""

    test: Tensor | None = None  # [m, s]: the server needs the products with this matrix only
    whole: bool = True  # sent as the m x m entries; otherwise as the table

    @property
    def numbers(self) -> int:
        """Every entry of the matrix, or of the table."""
        return int(self.value.shape[1]) ** 2 if self.whole else super().numbers


@dataclass(frozen=True, eq=False)
class Derived:
    """What a client can work out from what it has; it comes along so that it need not, and costs no bytes."""

    value: Tensor  # [c, ...]


@dataclass(frozen=True, eq=False)
class Summed:
    """What the clients of a cohort send, added up where they are simulated: a copy for each would not fit.

    Only for sums over clients, and out of reach of a privacy stage; on a device a cohort is one client.
    """

    value: Tensor  # [...]: no client axis
    nbytes: Tensor  # [c] int64: what each client sends by itself


Part = Tensor | RowUpdate | Table | Derived | Summed
Payload = dict[str, Part]
"""In an upload every part is a change since the start of the round; only a ``Table`` carries the value itself."""


def change(part: Part) -> Tensor:
    """What the server does not know yet, dense."""
    if isinstance(part, RowUpdate):
        return part.dense()
    if isinstance(part, Table):
        if part.known is None:
            raise ConfigError(
                "this method uploads tables the server knows nothing of, so they cannot be clipped or merged."
            )
        return part.value - part.known
    if isinstance(part, Summed):
        raise ConfigError("this method's uploads are held as sums over clients, so no single one can be changed.")
    assert isinstance(part, Tensor)
    return part


@dataclass(frozen=True, eq=False)
class Upload:
    """What a cohort sends to the server."""

    clients: Tensor  # [c] int64
    weights: Tensor  # [c] float32: training positives, the usual data weight
    parts: Payload


def touched_rows(part: Part) -> tuple[Tensor, Tensor, Tensor]:
    """Changes of an item table by row: the client's position in the cohort [k], the item [k], and the change [k, d].

    A method's own ``RowUpdate`` comes through a privacy stage, or from merging clients, as a dense tensor [c, m, d]:
    then every row counts as touched.
    """
    if isinstance(part, RowUpdate):
        valid = part.valid
        return valid.nonzero()[:, 0], part.rows[valid].long(), part.values[valid]
    if not isinstance(part, Tensor):
        raise TypeError(f"{type(part).__name__} holds no changes of rows; read it with table(...).")
    c, m, d = part.shape
    owners = torch.arange(c, device=part.device).repeat_interleave(m)
    return owners, torch.arange(m, device=part.device).repeat(c), part.reshape(c * m, d)


def _of_type(payload: Payload, name: str, kind: type[Found]) -> Found:
    part = payload[name]
    if not isinstance(part, kind):
        hint = ""
        if kind is RowUpdate:
            hint = "; after a privacy stage or merging rows are dense: touched_rows(part) reads both"
        raise TypeError(f"'{name}' is a {type(part).__name__} here, not a {kind.__name__}{hint}.")
    return part


def tensor(payload: Payload, name: str) -> Tensor:
    """The plain tensor of that name, sent or derived."""
    part = payload[name]
    return part.value if isinstance(part, Derived) else _of_type(payload, name, Tensor)


def row_update(payload: Payload, name: str) -> RowUpdate:
    """The row update of that name."""
    return _of_type(payload, name, RowUpdate)


def table(payload: Payload, name: str) -> Table:
    """The table of that name."""
    return _of_type(payload, name, Table)


def client_bytes(payload: Payload, clients: int) -> Tensor:
    """Bytes each of the ``clients`` of a cohort sends or receives, [c] int64; sparse rows count with their indices."""
    total = torch.zeros(clients, dtype=torch.int64)
    for part in payload.values():
        if isinstance(part, RowUpdate | Summed):
            total += part.nbytes.cpu()
        elif isinstance(part, Table):
            total += part.numbers * part.value.element_size()
        elif isinstance(part, Tensor):
            total += part[:1].numel() * part.element_size()
    return total
