"""Recommendations for people who were not there when a model was trained, from what they have had, on their own device.

Models whose scores are a function of a history answer at once. Federated methods with private state train it as the
engine trains any client's, a batch of one, against the server's state as it is: the server learns nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from fedrec.data.training import Ragged, TrainingView
from fedrec.errors import ConfigError
from fedrec.federation.arrows import Arrows, Gathering
from fedrec.federation.payload import State, Upload
from fedrec.federation.recommender import Recommender
from fedrec.federation.simulation import Simulation
from fedrec.federation.state_check import StateMismatchError, check_state
from fedrec.federation.trainer import FromHistory, RoundReport, Setup, Trainer, is_private

MOST_ROUNDS = 30
"""Rounds of local training at most; fewer once the loss hardly changes."""
SETTLED = 1e-3


class Newcomers:
    """A method and what its server has, ready for anybody's history."""

    def __init__(
        self,
        method: Recommender,
        state: Mapping[str, Tensor],
        n_items: int,
        *,
        ordered: bool,
        seed: int = 0,
        rounds: int = MOST_ROUNDS,
        device: str | torch.device = "cpu",
    ) -> None:
        """``state`` is that of a trainer, of which only what is not private is used; ``ordered``: histories have an order."""
        self.method, self.n_items, self.ordered = method, n_items, ordered
        self.rounds = max(1, min(rounds, MOST_ROUNDS))
        self.setup = Setup(seed, torch.device(device))
        self.state = {name: value for name, value in state.items() if not is_private(name)}
        if (problem := self._problem()) is not None:
            raise ConfigError(f"{method.name} cannot recommend to people who were not there in training: {problem}.")

    @property
    def at_once(self) -> bool:
        """Whether scores follow from a history without any training."""
        return self.method.folds_in

    def _problem(self) -> str | None:
        """Why the method cannot, if it cannot."""
        if not self.at_once and not isinstance(self.method, Arrows):
            return "it is centralised and has a vector for every user it was trained on; train again with their rows"
        try:
            fresh = self.method.trainer(self._view(np.zeros(0, np.int32)), self.setup)
            own = {name: value for name, value in fresh.state().items() if not is_private(name)}
            check_state(own, self.state)
            self._ready = self._loaded(fresh)
            if not self.at_once and not isinstance(fresh, Simulation):
                return "it has no local training of its own"
        except (StateMismatchError, ConfigError) as error:
            return (
                f"its server keeps something for every client ({str(error).rstrip('.')}), and has nothing for a new one"
            )
        return None

    def _view(self, history: np.ndarray) -> TrainingView:
        """One client with these items."""
        own = Ragged(np.array([0, len(history)]), history.astype(np.int32))
        excluded = Ragged(own.offsets, np.unique(own.values))
        return TrainingView(1, self.n_items, own, excluded, own if self.ordered else None)

    def _loaded(self, trainer: Trainer) -> Trainer:
        trainer.load_state(trainer.state() | self.state)
        return trainer

    @torch.no_grad()
    def scores(self, history: Tensor) -> Tensor:
        """Scores [m] of every item for somebody with these distinct items [W], oldest first."""
        if isinstance(self._ready, FromHistory) and self.at_once:
            past = history if len(history) else torch.tensor([-1])
            return self._ready.scores_from(past[None])[0].cpu()
        if not len(history):
            return self._ready.scores(torch.zeros(1, dtype=torch.int64))[0].cpu()
        trainer = self._alone(history)
        _train_alone(trainer, self.rounds)
        return trainer.scores(torch.zeros(1, dtype=torch.int64))[0].cpu()

    @torch.no_grad()
    def known(self, history: Tensor, private: Mapping[str, Tensor]) -> Tensor:
        """Scores [m] of a client with this history and this ``private`` state, which somebody trained before."""
        if self.at_once:
            return self.scores(history)
        trainer = self._alone(history)
        own = {f"clients.{name}": value for name, value in trainer.store.tensors.items()}
        given = {f"clients.{name}": value for name, value in private.items()}
        check_state(own, given)
        trainer.load_state(trainer.state() | given)
        return trainer.scores(torch.zeros(1, dtype=torch.int64))[0].cpu()

    def _alone(self, history: Tensor) -> Simulation:
        trainer = self._loaded(self.method.trainer(self._view(history.numpy()), self.setup))
        assert isinstance(trainer, Simulation)  # or it would have been refused
        return trainer

    def contributions(self, history: Tensor, items: Tensor) -> Tensor:
        """What every item of a history [W] adds to the scores of ``items`` [k], as [W, k]; for methods that ``explains``."""
        assert isinstance(self._ready, FromHistory)
        return self._ready.contributions(history[None], items[None])[0].cpu()

    @property
    def trainer(self) -> Trainer:
        """A trainer with the server's state and nobody in it."""
        return self._ready


def _train_alone(trainer: Simulation, rounds: int) -> None:
    """Rounds of the one client there is; its uploads reach nobody."""
    with torch.enable_grad():
        before = float("inf")
        for number in range(rounds):
            losses = trainer.clients.train(torch.tensor([0]), number, trainer.half, Nobody(), RoundReport())
            loss = float(losses[0][1].double().mean()) if losses else 0.0
            if loss == 0.0 or abs(before - loss) < SETTLED * abs(loss):
                return
            before = loss


class Nobody(Gathering):
    """Where uploads go that nobody gets."""

    def add(self, upload: Upload) -> None:
        """Forget it."""

    def step(self, server: State, round: int) -> State:
        """Nothing changes."""
        return server
