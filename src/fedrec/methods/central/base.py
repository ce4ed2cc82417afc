"""What a centralised method is, and how it trains: one round of a run is one pass over all interactions.

The server holds every training interaction and nothing is sent, so a centralised row is a ceiling, not a federated
result. Protocol, evaluation, checkpoints and command line are those of the federated methods.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from fedrec.data.training import TrainingView
from fedrec.errors import ConfigError, FedrecError
from fedrec.federation.mixture import Mixture
from fedrec.federation.payload import State
from fedrec.federation.recommender import Recommender
from fedrec.federation.task import Task
from fedrec.federation.trainer import RoundReport, Setup, Trainer
from fedrec.methods.central.observed import Observed
from fedrec.parts.recent import appended, own_history


class CentralMethod(Recommender):
    """A method without federation: three steps on all data instead of arrows."""

    private = "nothing: the server holds all interactions"
    server_keeps = "all training interactions and the model"
    sees = "all data"

    @abstractmethod
    def start(self, data: Observed, task: Task) -> State:
        """Initial model."""

    @abstractmethod
    def epoch(self, state: State, data: Observed, task: Task, number: int) -> Tensor:
        """One pass over the data, which changes ``state`` in place; returns the mean loss (0 for a closed form)."""

    def prepare(self, state: State, data: Observed) -> State:
        """What scoring needs, computed once per evaluation."""
        return state

    @abstractmethod
    def rate(self, ready: State, data: Observed, clients: Tensor) -> Tensor:
        """Scores [c, m] of these users from what ``prepare`` gave."""

    def rate_histories(self, ready: State, data: Observed, history: Tensor) -> Tensor:
        """Scores [c, m] of anybody with these items [c, W], oldest first, padded with -1; for methods that fold in."""
        raise NotImplementedError(self.name)

    def rate_parts(self, ready: State, data: Observed, history: Tensor, items: Tensor) -> Tensor:
        """What every item of a history [c, W] adds to the scores of ``items`` [c, k]; for methods that say they ``explains``."""
        raise NotImplementedError(self.name)

    def diagnostics(self, task: Task, state: State) -> dict[str, Any]:
        """What the method itself has to say at the end of a run."""
        return {}

    def trainer(self, view: TrainingView, setup: Setup) -> Trainer:
        """A trainer on all data; what only a federation has is refused."""
        if setup.privacy is not None:
            raise ConfigError(f"{self.name} is centralised and uploads nothing, so privacy has no meaning; drop it.")
        if setup.store_folder is not None:
            raise ConfigError(f"{self.name} is centralised and has no client state; use store=memory.")
        return CentralTrainer(self, view, setup)


class CentralTrainer:
    """Runs a centralised method epoch by epoch."""

    private_bytes = 0
    most_uploads = 0
    client_order: Tensor | None = None
    views: tuple[str, ...] = ()

    def __init__(self, method: CentralMethod, view: TrainingView, setup: Setup) -> None:
        """Move the data to the device and set up the model."""
        device = setup.device
        self.method, self.device, self.logits = method, device, method.logits
        self.task = Task(view.n_clients, view.n_items, torch.from_numpy(view.positives.counts), setup.seed, device)
        self.data = Observed(view, device)
        self.model = method.start(self.data, self.task)
        self._ready: State | None = None

    def round(self, number: int) -> RoundReport:
        """One pass over the data; ``number`` counts from 0."""
        start = time.perf_counter()
        self._ready = None
        loss = float(self.method.epoch(self.model, self.data, self.task, number))
        if loss != loss or abs(loss) == float("inf"):
            raise FedrecError(
                f"training diverged in epoch {number + 1}: the loss is not finite; {self.method.when_diverged}."
            )
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        seconds = {"training": time.perf_counter() - start}
        return RoundReport(loss=loss, clients=int((self.task.counts > 0).sum()), seconds=seconds)

    @property
    def folds_in(self) -> bool:
        """Whether scores can count items that came later."""
        return self.method.folds_in

    @torch.no_grad()
    def scores(self, clients: Tensor, view: str | None = None, later: Tensor | None = None) -> Tensor:
        """Scores [c, m] of these users, of whom each got the items ``later`` [c, k] (padded with -1) after training."""
        if view is not None:
            raise KeyError(view)
        if later is None:
            return self.method.rate(self._prepared(), self.data, clients.to(self.device))
        own = own_history(self.data.view, clients.cpu())["history"].to(self.device)
        return self.scores_from(appended(own, later.to(self.device)))

    @torch.no_grad()
    def scores_from(self, history: Tensor) -> Tensor:
        """Scores [c, m] of anybody who has these items [c, W], oldest first, padded with -1."""
        return self.method.rate_histories(self._prepared(), self.data, history.to(self.device))

    @torch.no_grad()
    def contributions(self, history: Tensor, items: Tensor) -> Tensor:
        """What every one of them adds to the scores of ``items`` [c, k], as [c, W, k]."""
        own, asked = history.to(self.device), items.to(self.device)
        return self.method.rate_parts(self._prepared(), self.data, own, asked)

    def _prepared(self) -> State:
        if self._ready is None:
            self._ready = self.method.prepare(self.model, self.data)
        return self._ready

    def diagnostics(self) -> dict[str, Any]:
        """What the method has to say."""
        return self.method.diagnostics(self.task, self.model)

    def mixtures(self, clients: Tensor) -> Iterator[tuple[Tensor, Mixture]]:
        """None."""
        return iter(())

    def client_groups(self) -> dict[str, Tensor]:
        """None."""
        return {}

    def state(self) -> dict[str, Tensor]:
        """The model and, for methods that learn by steps, the optimiser."""
        return dict(self.model)

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Continue from a saved state."""
        self.model = {name: value.to(self.device) for name, value in state.items()}
        self._ready = None
