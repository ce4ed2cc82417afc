"""FedSlist (ours): the order of things, learned in one federated round, exactly.

The linear session models of Choi et al. (WWW 2021) are ridge regressions, and their normal equations are sums over clients:
one secure sum of two item-item matrices trains the model that ``slist`` trains on collected data, to the last bit, because
what is added are whole numbers. A client scores with its own history on its device; the history never leaves it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fedrec.data.training import TrainingView
from fedrec.federation.payload import Table
from fedrec.method import (
    ClientState,
    Ledger,
    MethodConfig,
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
from fedrec.methods.fedslist.config import ORDERED, FedSlistConfig, per_entry
from fedrec.methods.fedslist.projected import add_projected, add_sketch, basis_of, core_of, signs
from fedrec.parts.gaussian import noise_multiplier, report
from fedrec.parts.gram import check_square
from fedrec.parts.order import ONE, Decay, add_histories
from fedrec.parts.ordered_weights import symmetric
from fedrec.parts.recent import appended, own_history
from fedrec.parts.symmetric import positive_part
from fedrec.sampling import streams

NOISE = "noise_std"
SPARSE = 8
"""Bytes of an entry that is sent with its place."""
NOISY = 40
"""Bytes more for every pair of items where there is noise: the noise, and eigenvectors."""


@dataclass(frozen=True, eq=False)
class Pairs(Table):
    """Matrices of a client, held as the history they are worked out from."""

    dense: int = 0
    """Numbers that a secure sum carries."""
    decay: Decay = field(default_factory=lambda: Decay(None, None, 0.0))
    basis: Tensor | None = None
    """The directions that A and R are seen from; none: all."""

    @property
    def numbers(self) -> int:
        """How many numbers one client sends."""
        return self.dense


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
    telling = ("variant", "rank")
    folds_in = explains = True

    def __init__(self, config: MethodConfig | None = None, **options: Any) -> None:
        """One round, after those that look for directions."""
        super().__init__(config, **options)
        self.rounds = 1 if self.config.rank is None else self.config.passes + 1

    def privacy_problem(self) -> str:
        """Noise belongs on the sum, not on each upload."""
        return "its noise goes on the sum over clients; set epsilon and n_max instead"

    def server_state(self, task: Task) -> State:
        """No weights yet."""
        if self.config.rank is None:
            advice, per_entry = "set rank or filter the data", self._per_entry
            check_square(self.name, task.n_items, task.device, self.config.memory_gb, advice, per_entry=per_entry)
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
        decay, lossless, rank = self._decay(bool(private["timed"][0])), torch.zeros(len(private)), self._rank(task)
        if rank is None:
            dense = task.n_items * (task.n_items + 1) // 2 + task.n_items**2
            return {"pairs": Pairs(history, dense=dense, decay=decay)}, lossless
        basis = tensor(payload, "basis")[0] if round else signs(task, rank)
        if round < self.config.passes:
            return {"sketch": Pairs(history, dense=task.n_items * rank, decay=decay, basis=basis)}, lossless
        dense = rank * (rank + 1) // 2 + rank**2
        return {"projected": Pairs(history, dense=dense, decay=decay, basis=basis)}, lossless

    def _rank(self, task: Task) -> int | None:
        return None if self.config.rank is None else min(self.config.rank, task.n_items)

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
        """A's upper triangle and R, or what is seen of them, in whole units of 2^-16."""
        ((kind, pairs),) = upload.parts.items()
        assert isinstance(pairs, Pairs)
        items, basis, decay = pairs.value, pairs.basis, pairs.decay
        size = task.n_items if basis is None else basis.shape[1]
        total.add("timed", float(len(items) if decay.ordered else 0))
        if kind == "sketch" and basis is not None:
            sketch = total.table("sketch", task.n_items, size, like=items, dtype=torch.int64)
            add_sketch(sketch, items, decay, basis.double())
            return
        past, after = (total.table(name, size, size, like=items, dtype=torch.int64) for name in ("past", "after"))
        if basis is None:
            add_histories(past, after, items, (items >= 0).sum(1), decay)
        else:
            add_projected(past, after, items, decay, basis.double())

    def step(self, task: Task, server: State, total: Total, round: int) -> State:
        """Add noise if asked, and solve; with ``rank`` find directions first."""
        if not total:
            return server
        timed = bool(total["timed"] > 0)
        if "sketch" in total:
            basis = basis_of(total["sketch"])
            return server | {"basis": basis, "core": torch.zeros(basis.shape[1], basis.shape[1], device=basis.device)}
        past, after = total["past"], total["after"]
        if self.config.rank is not None:
            known = torch.tensor([timed], device=task.device)
            return server | {"core": core_of(past, after, self.config.lam), ORDERED: known}
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
        """Whether order counted, what sums without zeros would be and, with noise, what the accountant says."""
        c = self.config
        noise = {} if c.epsilon is None else report(c.epsilon, c.delta, float(server[NOISE]))
        sizes = task.counts[task.able].clamp(max=c.n_max or task.n_items).double()
        entries = sizes * (sizes + 1) / 2 + sizes**2  # of A's upper triangle and of R, each with the number of its pair
        sparse = (
            {"mean": float(entries.mean()) * SPARSE, "largest": float(entries.max()) * SPARSE} if len(entries) else {}
        )
        return c.about(server) | {"bytes_up_without_zeros": sparse} | noise
