"""What a federated method derives from: what its server may see is part of its type.

A *sum* method's server reads sums over clients only, so any secure aggregation can carry it. An *each* method's server
needs every client's upload by itself, which is the first thing a privacy reviewer asks. There is no third kind.
"""

from __future__ import annotations

from abc import abstractmethod

from fedrec.data.training import TrainingView
from fedrec.federation.arrows import Arrows, Gathering
from fedrec.federation.exchange import added, gathered
from fedrec.federation.payload import State, Upload
from fedrec.federation.peers import Peers
from fedrec.federation.simulation import Simulation
from fedrec.federation.task import Task
from fedrec.federation.total import Total
from fedrec.federation.trainer import Setup, Trainer


class Method(Arrows):
    """A federated method that a simulation of all its clients on one machine runs."""

    def trainer(self, view: TrainingView, setup: Setup) -> Trainer:
        """A simulated federation."""
        return Simulation(self, view, setup)


class SumMethod(Method):
    """The server's step reads sums over clients."""

    sees = "sums only"

    @abstractmethod
    def contribute(self, task: Task, upload: Upload, total: Total) -> None:
        """Add a cohort's upload to the sums over clients."""

    @abstractmethod
    def step(self, task: Task, server: State, total: Total, round: int) -> State:
        """New server state from the sums over all clients of the round; empty where nobody sent anything."""

    def gather(self, task: Task) -> Gathering:
        """Sums."""
        return Sums(self, task)


class EachMethod(Method):
    """The server's step reads every client's upload."""

    sees = "every upload"

    def central_problem(self) -> str:
        """Noise on a sum protects nobody from a server that sees every upload."""
        return (
            "its server reads every client's upload by itself, so noise on sums would protect nobody; take noise on each "
            "upload (local), or a method whose server sees sums only"
        )

    @abstractmethod
    def step(self, task: Task, server: State, uploads: list[Upload], round: int) -> State:
        """New server state from the uploads of the round, cohort by cohort; their tensors may be reused."""

    def gather(self, task: Task) -> Gathering:
        """A list."""
        return Uploads(self, task)


class Sums(Gathering):
    """A round's sums over clients; those that several places added up are merged by adding them."""

    def __init__(self, method: SumMethod, task: Task) -> None:
        """Nobody has sent anything yet."""
        self.method, self.task = method, task
        self.total: Total = Total()

    def add(self, upload: Upload) -> None:
        """Add a cohort's contribution."""
        if upload.parts:
            self.method.contribute(self.task, upload, self.total)

    def exchange(self, peers: Peers) -> None:
        """Add the other processes' sums."""
        self.total = added(peers, self.total, self.task.device)

    def step(self, server: State, round: int) -> State:
        """The method's step on the sums."""
        return self.method.step(self.task, server, self.total, round)


class Uploads(Gathering):
    """A round's uploads, one by one; those collected in several places follow each other."""

    def __init__(self, method: EachMethod, task: Task) -> None:
        """Nobody has sent anything yet."""
        self.method, self.task, self.uploads = method, task, list[Upload]()

    def add(self, upload: Upload) -> None:
        """Keep a cohort's upload."""
        if upload.parts:
            self.uploads.append(upload)

    def exchange(self, peers: Peers) -> None:
        """Append the other processes' uploads."""
        self.uploads = gathered(peers, self.uploads, self.task.device)

    def step(self, server: State, round: int) -> State:
        """The method's step on the uploads."""
        return self.method.step(self.task, server, self.uploads, round)
