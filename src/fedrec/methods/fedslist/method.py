"""FedSlist (ours): the order of things, learned in one federated round, exactly.

The linear session models of Choi et al. (WWW 2021) are ridge regressions, and their normal equations are sums over clients:
one secure sum of two item-item matrices trains the model that ``slist`` trains on collected data, to the last bit, because
what is added are whole numbers. A client scores with its own history on its device; the history never leaves it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from pydantic import Field, model_validator
from torch import Tensor

from fedrec.data.training import TrainingView
from fedrec.federation.payload import Table
from fedrec.method import (
    ClientState,
    Ledger,
    Payload,
    Samples,
    State,
    SumMethod,
    Task,
    Total,
    Upload,
    broadcast,
    tensor,
)
from fedrec.methods.fedslist.config import SlistConfig, per_entry
from fedrec.parts.gaussian import noise_multiplier, report
from fedrec.parts.gram import check_square
from fedrec.parts.order import ONE, Decay, add_histories
from fedrec.parts.ordered_weights import symmetric
from fedrec.parts.recent import appended, own_history
from fedrec.parts.symmetric import positive_part
from fedrec.sampling import streams

NOISE = "noise_std"
NOISY = 40
"""Bytes more for every pair of items where there is noise: the noise, and eigenvectors."""


class FedSlistConfig(SlistConfig):
    """Settings of FedSlist."""

    epsilon: float | None = Field(None, gt=0)
    """Privacy budget of a client; Gaussian noise on the sum is calibrated to it. None: no noise."""
    delta: float = Field(1e-5, gt=0, lt=1)
    """Failure probability at which epsilon holds."""
    n_max: int | None = Field(None, ge=1)
    """Newest items a client contributes at most; it still scores with its whole history."""
    clip: float | None = Field(None, gt=0)
    """Largest L2 norm of a client's two matrices together; none: that of ``n_max`` items."""

    @model_validator(mode="after")
    def _bounded(self) -> FedSlistConfig:
        if self.epsilon is not None and self.n_max is None:
            raise ValueError("epsilon needs a bound on what one client contributes; set n_max, for example 50")
        return self


@dataclass(frozen=True, eq=False)
class Pairs(Table):
    """Two m x m matrices of a client, held as the history they are worked out from."""

    n_items: int = 0
    decay: Decay = field(default_factory=lambda: Decay(None, None, 0.0))

    @property
    def numbers(self) -> int:
        """A's upper triangle and R, which is what a secure sum carries."""
        return self.n_items * (self.n_items + 1) // 2 + self.n_items**2


class FedSlist(SumMethod):
    """One secure sum, a closed form, private scoring with what is recent."""

    name = "fedslist"
    title = "what comes after what, in one federated round: a secure sum of two item-item matrices (ours)"
    paper = "ours, after Choi et al. 2021 and Steck 2019"
    private = "the client's own history, in order"
    uploaded = "two item-item matrices, for a sum over clients only"
    server_keeps = "item-item weights"
    Config = FedSlistConfig
    config: FedSlistConfig
    rounds = 1
    logits = False
    folds_in = explains = True

    def privacy_problem(self) -> str:
        """Noise belongs on the sum, not on each upload."""
        return "its noise goes on the sum over clients; set epsilon and n_max instead"

    def server_state(self, task: Task) -> State:
        """No weights yet."""
        check_square(
            self.name, task.n_items, task.device, self.config.memory_gb, "filter the data", per_entry=self._per_entry
        )
        noise = {} if self.config.epsilon is None else {NOISE: torch.zeros(1, device=task.device)}
        return self.config.empty(task.n_items, task.device) | noise

    @property
    def _per_entry(self) -> int:
        return per_entry(self.config) + (0 if self.config.epsilon is None else NOISY)

    def client_state(self, task: Task, clients: Tensor) -> State:
        """Nothing beside the history."""
        return {}

    def own_data(self, view: TrainingView, clients: Tensor) -> State:
        """The history, oldest first, and whether its order means anything."""
        timed = torch.full((len(clients),), view.history is not None)
        return own_history(view, clients) | {"timed": timed}

    def broadcast(self, task: Task, server: State, clients: Tensor) -> Payload:
        """The weights."""
        return {name: broadcast(value, len(clients)) for name, value in server.items() if name != NOISE}

    def train(
        self, task: Task, private: ClientState, payload: Payload, samples: Samples, round: int
    ) -> tuple[Payload, Tensor]:
        """What each client adds is a function of its history, the newest ``n_max`` items of it."""
        history = private["history"]
        lengths = (history >= 0).sum(1)
        if (most := self.config.n_max) is not None:
            place = torch.arange(most, device=history.device) + (lengths - most).clamp(min=0)[:, None]
            inside = place < lengths[:, None]
            history = history.gather(1, place.clamp(max=history.shape[1] - 1)).where(inside, -1)
        sent = Pairs(history, n_items=task.n_items, decay=self._decay(bool(private["timed"][0])))
        return {"pairs": sent}, torch.zeros(len(private))

    def _decay(self, timed: bool) -> Decay:
        decay = self.config.decay(timed, self.config.clip)
        if self.config.epsilon is not None and decay.clip is None and self.config.n_max is not None:
            return replace(decay, clip=float(decay.norms(self.config.n_max)[-1]))
        return decay

    @property
    def adds_noise(self) -> bool:
        """Where noise is asked for."""
        return self.config.epsilon is not None

    def contribute(self, task: Task, upload: Upload, total: Total) -> None:
        """A's upper triangle and R, in whole units of 2^-16."""
        pairs = upload.parts["pairs"]
        assert isinstance(pairs, Pairs)
        m, items = task.n_items, pairs.value
        past, after = (total.table(name, m, m, like=items, dtype=torch.int64) for name in ("past", "after"))
        add_histories(past, after, items, (items >= 0).sum(1), pairs.decay)
        total.add("timed", float(len(items) if pairs.decay.ordered else 0))

    def step(self, task: Task, server: State, total: Total, round: int) -> State:
        """Add noise if asked, and solve."""
        if not total:
            return server
        past, after = total["past"], total["after"]
        timed = bool(total["timed"] > 0)
        if self.config.epsilon is None:
            return self.config.solved(past, after, timed)
        clip = self._decay(timed).clip or 0.0
        std = clip * noise_multiplier(self.config.epsilon, self.config.delta, 1)
        return self.config.solved(*self._noised(task, past, after, std), timed) | {
            NOISE: torch.tensor([std], device=task.device)
        }

    def _noised(self, task: Task, past: Tensor, after: Tensor, std: float) -> tuple[Tensor, Tensor]:
        key, index = task.common_key(streams.Purpose.NOISE).to(past.device), torch.arange(past.numel())
        noise = streams.normal(key, index.to(past.device)).view_as(past).mul_(std * ONE)
        upper = (past + noise).triu_()
        other = streams.normal(streams.child(key, 1), index.to(past.device)).view_as(after)
        return positive_part(symmetric(upper, torch.float64)), (after + other.mul_(std * ONE)).div_(ONE)

    def fold_in(self, task: Task, private: ClientState, later: Tensor) -> State:
        """The history goes on."""
        return {"history": appended(private["history"], later)}

    def scores(self, task: Task, private: ClientState, payload: Payload) -> Tensor:
        """q'B with the own history."""
        model = {name: tensor(payload, name)[0] for name in payload}
        return self.config.scores(model, private["history"])

    def contributions(
        self, task: Task, private: ClientState, payload: Payload, history: Tensor, items: Tensor
    ) -> Tensor:
        """The weights of the own items."""
        return self.config.parts({name: tensor(payload, name)[0] for name in payload}, history, items)

    def diagnostics(self, task: Task, server: State, ledger: Ledger) -> dict[str, Any]:
        """Whether order counted and, with noise, what the accountant says."""
        c = self.config
        noise = {} if c.epsilon is None else report(c.epsilon, c.delta, float(server[NOISE]))
        return c.about(server) | noise
