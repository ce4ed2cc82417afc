"""What a method may know of the data before training: sizes, never interactions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedrec.sampling import streams


@dataclass(frozen=True, eq=False)
class Task:
    """Sizes, the seed everything random is a function of, and the device."""

    n_clients: int
    n_items: int
    counts: Tensor  # [n] int64: training positives per client
    seed: int
    device: torch.device
    noised: bool = False
    """Whether sums over clients carry noise for privacy."""

    def generator(self) -> torch.Generator:
        """The server's random numbers for initial values, the same on every device."""
        return torch.Generator().manual_seed(self.seed)

    def normal(self, *shape: int, std: float, generator: torch.Generator) -> Tensor:
        """Initial values N(0, std^2), drawn on the CPU so that devices agree."""
        return (torch.randn(*shape, generator=generator) * std).to(self.device)

    def item_table(self, dim: int, std: float) -> Tensor:
        """The initial item table N(0, std^2), [m, dim], that is a function of the seed alone."""
        return self.normal(self.n_items, dim, std=std, generator=self.generator())

    def client_normal(self, clients: Tensor, *shape: int, std: float, common: bool = False, stream: int = 0) -> Tensor:
        """Initial values N(0, std^2) of each client, [c, *shape]; the same for all clients if ``common``."""
        who = torch.zeros(1, dtype=torch.int64) if common else clients.cpu()
        keys = streams.child(streams.keys(self.seed, streams.Purpose.INIT, 0, who), stream)
        size = torch.Size(shape).numel()
        values = streams.normal(keys[:, None], torch.arange(size)).float() * std
        return values.expand(len(clients), size).reshape(len(clients), *shape).to(self.device)

    def common_key(self, purpose: streams.Purpose, round: int = 0) -> Tensor:
        """Key [1] of a stream that is nobody's own: of the server, or common to all clients. On the CPU."""
        return streams.keys(self.seed, purpose, round, torch.zeros(1, dtype=torch.int64))

    @property
    def able(self) -> Tensor:
        """Clients that have training items, ascending."""
        return torch.nonzero(self.counts > 0)[:, 0]

    def participation_rng(self, round: int) -> np.random.Generator:
        """The random numbers that choose a round's participants."""
        return np.random.default_rng([self.seed, int(streams.Purpose.PARTICIPATION), round])
