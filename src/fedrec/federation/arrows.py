"""The arrows between a server and its clients, as the engine calls them.

    server --broadcast--> clients --train--> clients --upload--> server --step--> server

The engine owns who takes part, cohorts, negatives, randomness, bytes and privacy stages. Every
tensor of a client has a leading client axis; one client is a batch of one. Arrows are functions of what they are given:
a method keeps its settings and nothing else, so one object can run any number of federations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedrec.data.training import TrainingView
from fedrec.federation.config import PartialConfig
from fedrec.federation.ledger import Ledger
from fedrec.federation.mixture import Mixture
from fedrec.federation.payload import Payload, State, Upload
from fedrec.federation.peers import Peers
from fedrec.federation.recommender import Recommender
from fedrec.federation.store import ClientState
from fedrec.federation.task import Task
from fedrec.federation.total import Total
from fedrec.sampling.samples import Samples


class Gathering(ABC):
    """What a round's uploads become on their way to the server: sums, or a list."""

    total: Total | None = None
    """The sums, where it is sums."""

    @abstractmethod
    def add(self, upload: Upload) -> None:
        """Take in a cohort's upload."""

    def exchange(self, peers: Peers) -> None:
        """Take in what the other processes of a simulation gathered, each of them alike."""
        raise NotImplementedError(type(self).__name__)

    @abstractmethod
    def step(self, server: State, round: int) -> State:
        """The server's new state."""


class Arrows(Recommender):
    """A federated method; derive from ``SumMethod`` or ``EachMethod``, which add the server's step."""

    silent: ClassVar[bool] = False
    """No client ever sends or receives anything."""
    draws_participants: ClassVar[bool] = True
    """Participants of every round are drawn at random, whoever took part before."""

    @abstractmethod
    def server_state(self, task: Task) -> State:
        """Initial state of the server."""

    @abstractmethod
    def client_state(self, task: Task, clients: Tensor) -> State:
        """Initial private state of these clients."""

    @abstractmethod
    def broadcast(self, task: Task, server: State, clients: Tensor) -> Payload:
        """What these clients download."""

    @abstractmethod
    def train(
        self, task: Task, private: ClientState, payload: Payload, samples: Samples, round: int
    ) -> tuple[Payload, Tensor]:
        """Train these clients, whose private state changes in place; return their upload and losses [c]."""

    @abstractmethod
    def gather(self, task: Task) -> Gathering:
        """An empty gathering for the uploads of one round."""

    @abstractmethod
    def scores(self, task: Task, private: ClientState, payload: Payload) -> Tensor:
        """Scores [c, m] of every item for these clients, computed on the device with what they hold and download."""

    # What follows has a default that suits most methods.

    @property
    def participation(self) -> float:
        """Share of clients that train in a round."""
        return self.config.participation if isinstance(self.config, PartialConfig) else 1.0

    def participants(self, task: Task, server: State, round: int) -> Tensor:
        """Clients that train this round, by default a random share of those that have training items."""
        able = task.able
        if self.participation == 1.0:
            return able
        drawn = task.participation_rng(round).choice(len(able), max(1, int(self.participation * len(able))), False)
        return able[torch.from_numpy(np.sort(drawn))]

    def blocks(self, task: Task) -> int:
        """How many times the arrows run, with other participants each, in what a run calls a round."""
        return 1

    def sampling_round(self, round: int) -> int:
        """The round whose negatives are used: this one, or always 0 for a method that draws them once."""
        return round

    def kinds(self, task: Task, server: State, clients: Tensor) -> Tensor | None:
        """A label per client where payloads differ in shape; cohorts never mix labels."""
        return None

    def own_data(self, view: TrainingView, clients: Tensor) -> State:
        """What these clients keep of their own training items, beside ``client_state``; it never leaves them."""
        return {}

    def fold_in(self, task: Task, private: ClientState, later: Tensor) -> State:
        """Private state of these clients, as far as it changes, once the items ``later`` [c, k], padded with -1, came.

        For methods that say they ``folds_in``; nothing is trained.
        """
        raise NotImplementedError(self.name)

    def contributions(
        self, task: Task, private: ClientState, payload: Payload, history: Tensor, items: Tensor
    ) -> Tensor:
        """What every item of a ``history`` [c, W] that ``private`` holds adds to the scores of ``items`` [c, k]: [c, W, k].

        For methods that say they ``explains``.
        """
        raise NotImplementedError(self.name)

    def privacy_problem(self) -> str | None:
        """Why this method's uploads cannot pass a privacy stage, if they cannot."""
        return None

    def central_problem(self) -> str | None:
        """Why there can be no noise on the sums that this method's server reads, if there cannot."""
        return "nobody sends anything" if self.silent else self.privacy_problem()

    @property
    def adds_noise(self) -> bool:
        """Whether its settings have the server add noise to sums, as a simulation of clients who would."""
        return False

    def public_sum(self, name: str) -> bool:
        """Whether a sum says only who took part, which the server knows: it needs no noise."""
        return name.endswith((".weight", ".clients"))

    def sum_bounds(self) -> dict[str, float] | None:
        """What a client adds at most to each sum, in L2 norm, where the method sees to that; None: uploads are clipped."""
        return None

    def privacy_notes(self) -> tuple[str, ...]:
        """What a privacy stage changes in this method, in words for its user."""
        return ()

    def server_bytes(self, clients: int, items: int, private: int) -> int:
        """Memory the server needs beside ``private`` bytes of state of so many clients, where it is of that order."""
        return 0

    @property
    def views(self) -> tuple[str, ...]:
        """Names of other ways to score that are worth reporting beside ``scores``."""
        return ()

    def view_scores(self, task: Task, view: str, private: ClientState, payload: Payload) -> Tensor:
        """Scores [c, m] of one of the ``views``."""
        raise KeyError(view)

    def mixture(self, task: Task, private: ClientState, payload: Payload) -> Mixture | None:
        """What these clients' item tables are made of, where they merge their own with the one they download."""
        return None

    def client_groups(self, task: Task) -> dict[str, Tensor]:
        """Named groups of clients (their numbers) whose results are reported apart."""
        return {}

    def diagnostics(self, task: Task, server: State, ledger: Ledger) -> dict[str, Any]:
        """What the method itself has to say at the end of a run; goes into the result."""
        return {}
