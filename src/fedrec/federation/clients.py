"""The clients' half of a federation: what devices do, for all clients of a simulation or for those of one site.

Clients bear the numbers they have in the whole federation, so that what is random about them is the same wherever they
run. Who takes part, what they download and what becomes of their uploads is the other half's business (``server.py``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fedrec.compute.memory import available
from fedrec.data.training import Ragged, TrainingView
from fedrec.errors import ConfigError, FedrecError
from fedrec.federation.arrows import Arrows, Gathering
from fedrec.federation.central_privacy import CentralPrivacy
from fedrec.federation.cohorts import SAMPLES, TABLES, WASTE, cohorts, size_order
from fedrec.federation.ledger import Ledger
from fedrec.federation.mixture import Mixture
from fedrec.federation.payload import Payload, State, Upload, client_bytes
from fedrec.federation.stages import Noise
from fedrec.federation.store import ClientState, ClientStore, stored_type
from fedrec.federation.task import Task
from fedrec.federation.trainer import RoundReport, Setup
from fedrec.sampling.negatives import Sampler

Losses = list[tuple[Tensor, Tensor]]
"""Clients and their losses, cohort by cohort."""


class Downlink(Protocol):
    """Where clients get what they download."""

    def kinds(self, clients: Tensor) -> Tensor | None:
        """A label per client where downloads differ in shape; None where all are alike."""
        ...

    def payload(self, clients: Tensor) -> Payload:
        """What these clients, of one kind, download."""
        ...


class Clients:
    """Private state of some clients, and the arrows that run on it."""

    def __init__(
        self,
        method: Arrows,
        view: TrainingView,
        task: Task,
        setup: Setup,
        *,
        share: Tensor | None = None,
        cohort_samples: int | None = None,
    ) -> None:
        """All clients of ``view``, or the ``share`` [k] of them that lives here; the others may have empty lists there."""
        self.method, self.view, self.task, self.privacy, self.device = method, view, task, setup.privacy, setup.device
        if setup.privacy is not None:
            check_noise(method, setup.privacy.settings)
            setup.privacy.meet(method, task)
            setup.privacy.prepare(task.n_clients)
        self.seals = True
        """Whether sums get their noise here; else whoever brings together what several processes added up sees to it."""
        self.ledger = Ledger(task.n_clients)
        self.sampler = Sampler(view, self.device)
        self.cohort_samples = cohort_samples or SAMPLES[self.device.type]
        order = size_order(task.counts) if share is None else share[size_order(task.counts[share])]
        self.order = order
        self.store = ClientStore(order, setup.store_folder, half=setup.half, numbers=task.n_clients)
        first = self._fresh(order[:1])
        sizes = (t.numel() * stored_type(t, setup.half).itemsize for t in first.values())
        self.private_bytes = len(order) * sum(sizes)
        check_fits(method, task, self.private_bytes, on_disk=setup.store_folder is not None)
        largest = max((t.numel() * t.element_size() for t in first.values()), default=1)
        self.most = max(1, TABLES[self.device.type] // max(largest, 4 * view.n_items))
        for chunk in torch.split(order, self.most):
            self.store.fill(chunk, self._fresh(chunk))

    def _fresh(self, clients: Tensor, view: TrainingView | None = None) -> State:
        kept = self.method.own_data(view or self.view, clients)
        return self.method.client_state(self.task, clients) | {name: t.to(self.device) for name, t in kept.items()}

    def train(
        self, chosen: Tensor, number: int, downlink: Downlink, gathering: Gathering, report: RoundReport
    ) -> Losses:
        """Draw, broadcast, train, privacy, add up or collect: everything of a round but the server's step."""
        method, task = self.method, self.task
        losses: Losses = []
        report.clients += len(chosen)
        for clients in self._cohorts(chosen, downlink):
            with timed(report, "sampling", self.device):
                samples = self.sampler.draw(
                    clients, negatives=method.negatives, seed=task.seed, round=method.sampling_round(number)
                )
            with timed(report, "training", self.device):
                payload = downlink.payload(clients)
                parts, loss = method.train(task, self.store.at(clients), payload, samples, number)
                check_shape(method, "train", "losses", loss, (len(clients),))
                if self.privacy is not None:
                    parts = self.privacy.apply(parts, clients.to(self.device), number)
                received, sent = (client_bytes(arrow, len(clients)) for arrow in (payload, parts))
            self.ledger.note(clients, number, sent=sent, received=received, uploaded=bool(parts))
            report.bytes_down += int(received.sum())
            report.bytes_up += int(sent.sum())
            losses.append((clients, loss))
            with timed(report, "aggregation", self.device):
                weights = task.counts[clients].to(self.device, torch.float32)
                weights = weights if self.privacy is None else self.privacy.weights(weights)
                gathering.add(Upload(clients, weights, parts))
        if self.seals:
            self.seal(gathering, number)
        return losses

    def seal(self, gathering: Gathering, number: int) -> None:
        """Add the noise of a privacy stage to sums, once in a place."""
        if self.privacy is not None and gathering.total is not None:
            self.privacy.seal(gathering.total, number)

    def _cohorts(self, chosen: Tensor, downlink: Downlink) -> list[Tensor]:
        sizes = self.task.counts * (1 + self.method.negatives)
        waste = WASTE[self.device.type]
        return cohorts(chosen, sizes, downlink.kinds(chosen), samples=self.cohort_samples, most=self.most, waste=waste)

    def scores(
        self, clients: Tensor, downlink: Downlink, view: str | None = None, later: Tensor | None = None
    ) -> Tensor:
        """Scores [c, m] of any clients with their current state, and with the items ``later`` [c, k] that came after."""
        kinds = _positions(clients, downlink)
        if kinds is None:
            return self._scores(clients, downlink, view, later)
        out = torch.empty(len(clients), self.task.n_items, device=self.device)
        for chosen in kinds:
            came = None if later is None else later[chosen.to(later.device)]
            out[chosen.to(self.device)] = self._scores(clients[chosen], downlink, view, came)
        return out

    def _scores(self, clients: Tensor, downlink: Downlink, view: str | None, later: Tensor | None) -> Tensor:
        blocks = []
        for first in range(0, len(clients), self.most):
            part = clients[first : first + self.most]
            private, payload = self.store.at(part), downlink.payload(part)
            if later is not None:
                came = later[first : first + self.most].to(self.device)
                private = private.replaced(self.method.fold_in(self.task, private, came))
            if view is None:
                found = self.method.scores(self.task, private, payload)
            else:
                found = self.method.view_scores(self.task, view, private, payload)
            check_shape(self.method, "scores", "scores", found, (len(part), self.task.n_items))
            blocks.append(found)
        return blocks[0] if len(blocks) == 1 else torch.cat(blocks)

    def scores_from(self, history: Tensor, downlink: Downlink) -> Tensor:
        """Scores [c, m] of clients that were not there and have these items [c, W], oldest first, padded with -1."""
        private, payload = self._newcomers(history), downlink.payload(torch.arange(len(history)))
        found = self.method.scores(self.task, private, payload)
        check_shape(self.method, "scores", "scores", found, (len(history), self.task.n_items))
        return found

    def contributions(self, history: Tensor, items: Tensor, downlink: Downlink) -> Tensor:
        """What every item of such a history adds to the scores of ``items`` [c, k]."""
        private, payload = self._newcomers(history), downlink.payload(torch.arange(len(history)))
        own, asked = history.to(self.device), items.to(self.device)
        found = self.method.contributions(self.task, private, payload, own, asked)
        check_shape(self.method, "contributions", "contributions", found, (*history.shape, items.shape[1]))
        return found

    def _newcomers(self, history: Tensor) -> ClientState:
        """Private state of as many new clients as there are rows, who then get these items."""
        none = Ragged(np.zeros(len(history) + 1, np.int64), np.zeros(0, np.int32))
        nothing = replace(
            self.view,
            n_clients=len(history),
            positives=none,
            excluded=none,
            history=None if self.view.history is None else none,
        )
        clients = torch.arange(len(history))
        fresh = ClientState(self._fresh(clients, nothing), clients)
        return fresh.replaced(self.method.fold_in(self.task, fresh, history.to(self.device)))

    def mixtures(self, clients: Tensor, downlink: Downlink) -> Iterator[tuple[Tensor, Mixture]]:
        """What the item tables of any clients are made of, block by block; nothing where clients do not merge."""
        for chosen in _positions(clients, downlink) or [torch.arange(len(clients))]:
            for part in torch.split(clients[chosen], self.most):
                private, payload = self.store.at(part), downlink.payload(part)
                found = self.method.mixture(self.task, private, payload)
                if found is None:
                    return
                check_shape(self.method, "mixture", "shares", found.share, (len(part), self.task.n_items))
                yield part, found

    def state(self) -> dict[str, Tensor]:
        """Everything a later round depends on, by name."""
        stored = {f"clients.{name}": value for name, value in self.store.tensors.items()}
        if self.privacy is not None:
            stored |= {f"secret.{name}": value for name, value in self.privacy.state().items()}
        return stored | {f"ledger.{name}": value for name, value in self.ledger.state().items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Continue from a saved state."""
        self.ledger.load_state({name: state[f"ledger.{name}"] for name in self.ledger.state()})
        for name, stored in self.store.tensors.items():
            stored.copy_(state[f"clients.{name}"])
        if self.privacy is not None:
            self.privacy.load_state({name: state[f"secret.{name}"] for name in self.privacy.state()})


def _positions(clients: Tensor, downlink: Downlink) -> list[Tensor] | None:
    """Positions of the clients of each kind; None where all are of one."""
    kinds = downlink.kinds(clients)
    if kinds is None:
        return None
    return [(kinds == value).nonzero()[:, 0].cpu() for value in torch.unique(kinds).tolist()]


def check_noise(method: Arrows, noise: Noise) -> None:
    """Refuse a privacy stage that makes no sense of what a method's clients send, with the reason."""
    if isinstance(noise, CentralPrivacy):
        if problem := method.central_problem():
            raise ConfigError(f"{method.name} cannot have noise on its sums: {problem}.")
    elif problem := method.privacy_problem():
        raise ConfigError(f"{method.name} cannot be combined with a privacy stage: {problem}.")


def mean_loss(method: Arrows, losses: Losses, round: int) -> float:
    """Mean over the clients of a round, which counts from 0; NaN where nobody trained."""
    if not losses:
        return float("nan")
    clients, loss = torch.cat([c for c, _ in losses]), torch.cat([v for _, v in losses]).cpu()
    if not bool(torch.isfinite(loss).all()):
        client = int(clients[~torch.isfinite(loss)][0])
        raise FedrecError(
            f"training diverged in round {round + 1}: the loss of client {client} is not finite; {method.when_diverged}."
        )
    return float(loss.double().mean())


@contextmanager
def timed(report: RoundReport, name: str, device: torch.device) -> Iterator[None]:
    """Count the time of what follows to a phase of the round."""
    start = time.perf_counter()
    try:
        yield
    finally:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        report.seconds[name] = report.seconds.get(name, 0.0) + time.perf_counter() - start


def check_fits(method: Arrows, task: Task, private: int, *, on_disk: bool) -> None:
    """Refuse a run whose client state cannot fit, with the numbers."""
    needed, device = private + method.server_bytes(task.n_clients, task.n_items, private), task.device
    have = available(device)
    if not on_disk and needed > have:
        raise ConfigError(
            f"{method.name} needs about {needed / 1e9:.1f} GB for its state, but {have / 1e9:.1f} GB are free on "
            f"{device}; lower dim, filter the data, or keep client state on disk (store=disk)."
        )


def check_shape(method: Arrows, arrow: str, what: str, found: Tensor, expected: tuple[int, ...]) -> None:
    """Refuse what an arrow returned in another shape: every tensor of a client has a leading client axis."""
    if found.shape != expected:
        raise TypeError(
            f"{method.name}: {arrow} returned {what} of shape {list(found.shape)}, not {list(expected)}; "
            "every client has a row of its own."
        )
