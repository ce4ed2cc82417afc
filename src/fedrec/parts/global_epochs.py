"""Global epochs: all clients once, in shuffled blocks, as one round of a run.

Papers that train a few hundred clients per round count in passes over all clients; so do their curves and budgets.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor

from fedrec.federation.method import Task, participation_rng
from fedrec.federation.simulation import Simulation
from fedrec.federation.trainer import RoundReport


class _Settings(Protocol):
    clients_per_round: int
    participation: float


def visited(config: _Settings, task: Task) -> int:
    """Clients a global epoch visits."""
    return max(1, int(config.participation * int((task.counts > 0).sum())))


def blocks(config: _Settings, task: Task) -> int:
    """Blocks of one global epoch."""
    return math.ceil(visited(config, task) / config.clients_per_round)


def block_of_clients(config: _Settings, task: Task, number: int) -> Tensor:
    """The clients of block ``number``, counted over all epochs; every epoch has its own order."""
    epoch, block = divmod(number, blocks(config, task))
    able = torch.nonzero(task.counts > 0)[:, 0]
    order = participation_rng(task.seed, epoch).permutation(len(able))[: visited(config, task)]
    first = block * config.clients_per_round
    return able[torch.from_numpy(order[first : first + config.clients_per_round])]


class GlobalEpochs(Simulation):
    """A round of the run is a global epoch: every block of clients once, each through the method's four arrows."""

    def round_name(self, number: int) -> str:
        """The epoch of a block."""
        return super().round_name(number // blocks(self.method.config, self.task))

    def round(self, number: int) -> RoundReport:
        """Run all blocks and add up what they cost."""
        n_blocks, whole, loss = blocks(self.method.config, self.task), RoundReport(), 0.0
        for block in range(n_blocks):
            report = super().round(number * n_blocks + block)
            loss += report.loss * report.clients
            whole.clients += report.clients
            whole.bytes_up += report.bytes_up
            whole.bytes_down += report.bytes_down
            for name, seconds in report.seconds.items():
                whole.seconds[name] = whole.seconds.get(name, 0.0) + seconds
        whole.loss = loss / max(1, whole.clients)
        return whole
