"""Which clients live in which process of a simulation, and how what they have comes together."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedrec.errors import ConfigError
from fedrec.federation.cohorts import size_order
from fedrec.federation.ledger import Ledger
from fedrec.federation.peers import Alone, Peers

STORED, NUMBERED = "clients.", "ledger."
"""Prefixes of state with a row per client: in storage order, and by client number."""


class Shares:
    """Clients dealt out by size, so that every process has as many large ones as the others.

    The rows of one process are every ``size``-th row of the storage order of a simulation in one process. So a checkpoint is
    the same whatever the number of processes that wrote it, and any number can go on with it.
    """

    def __init__(self, counts: Tensor, peers: Peers | None = None) -> None:
        """``counts`` [n] are the clients' numbers of training items."""
        self.peers: Peers = peers or Alone()
        order = size_order(counts)
        self._all = [order[rank :: self.peers.size] for rank in range(self.peers.size)]
        self.own = self._all[self.peers.rank]
        """Clients of this process, in storage order."""
        self._lives_here = torch.zeros(len(counts), dtype=torch.bool)
        self._lives_here[self.own] = True

    @property
    def alone(self) -> bool:
        """Whether one process has them all."""
        return self.peers.size == 1

    @property
    def first(self) -> bool:
        """Whether this process speaks and writes for all."""
        return self.peers.rank == 0

    def require(self, clients: Tensor) -> None:
        """Refuse clients of other processes, whose state is not here."""
        if not self.alone and not bool(self._lives_here[clients.cpu()].all()):
            raise ConfigError(
                f"each of the {self.peers.size} processes has the state of its own clients only; train into a run folder (out) "
                "and load the run from there."
            )

    def here(self, clients: Tensor) -> Tensor:
        """Those of some clients that live in this process, in the order given."""
        return clients if self.alone else clients[self._lives_here[clients.cpu()]]

    def together(self, values: Tensor) -> Tensor:
        """Rows of all clients [n, ...], each from the process it lives in."""
        if self.alone:
            return values
        return self._placed(values, self.peers.gather(values[self.own]), self._all)

    def whole(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """The state of the simulation from those of all processes; for the first process, the others get their own back."""
        if self.alone:
            return state
        found = dict(state)
        every = [slice(rank, None, self.peers.size) for rank in range(self.peers.size)]
        for name, value in state.items():
            if name.startswith(STORED):
                parts = self.peers.collect(value)
                found[name] = self._placed(value.new_empty(sum(map(len, parts)), *value.shape[1:]), parts, every)
            elif name.startswith(NUMBERED):
                found[name] = self._placed(value, self.peers.collect(value[self.own]), self._all)
        return found if self.first else state

    def part(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """This process's part of the state of a whole simulation."""
        if self.alone:
            return state
        rank, size = self.peers.rank, self.peers.size
        return {name: value[rank::size] if name.startswith(STORED) else value for name, value in state.items()}

    @staticmethod
    def _placed(like: Tensor, parts: Sequence[Tensor], places: Sequence[Tensor | slice]) -> Tensor:
        out = like.clone()
        for part, place in zip(parts, places, strict=False):
            out[place] = part.to(out.device)
        return out

    def sums(self, *numbers: float) -> list[float]:
        """Numbers summed over processes."""
        values = torch.tensor(numbers, dtype=torch.float64)
        self.peers.add(values)
        return [float(value) for value in values]

    def most(self, number: float) -> float:
        """The largest of the processes' numbers."""
        return max(float(value) for value in self.peers.gather(torch.tensor([number], dtype=torch.float64)))

    def decided(self, flag: bool) -> bool:
        """What the first process says, so that all do the same."""
        return bool(self.peers.gather(torch.tensor([flag]))[0])

    def losses(self, losses: list[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, Tensor]]:
        """Clients and their losses in all processes."""
        if self.alone:
            return losses
        clients = torch.cat([torch.zeros(0, dtype=torch.int64), *(who.cpu() for who, _ in losses)])
        values = torch.cat([torch.zeros(0, dtype=torch.float64), *(loss.double().cpu() for _, loss in losses)])
        pairs = zip(self.peers.gather(clients), self.peers.gather(values), strict=True)
        return [pair for pair in pairs if len(pair[0])]

    def ledger(self, own: Ledger) -> Ledger:
        """What all clients did, whichever process they live in."""
        if self.alone:
            return own
        found = Ledger(len(own.visits))
        found.load_state({name: self.together(value) for name, value in own.state().items()})
        return found
