"""One federation on one machine: rounds over cohorts of clients, with bytes and time counted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from fedrec.compute.memory import available
from fedrec.data.training import TrainingView
from fedrec.errors import ConfigError, FedrecError
from fedrec.federation.arrows import Arrows
from fedrec.federation.cohorts import SAMPLES, TABLES, WASTE, cohorts, size_order
from fedrec.federation.ledger import Ledger
from fedrec.federation.mixture import Mixture
from fedrec.federation.payload import State, Upload, client_bytes
from fedrec.federation.store import ClientStore
from fedrec.federation.task import Task
from fedrec.federation.trainer import RoundReport, Setup
from fedrec.sampling.negatives import Sampler


class Simulation:
    """Runs a method round by round over all clients of a training view."""

    def __init__(
        self, method: Arrows, view: TrainingView, setup: Setup | None = None, *, cohort_samples: int | None = None
    ) -> None:
        """Set up server and clients; ``cohort_samples`` bounds the padded samples of a cohort (results do not depend on it)."""
        if not isinstance(method, Arrows):
            raise FedrecError(f"{method.name} is centralised and cannot run as a federation; use its own trainer.")
        setup = setup or Setup()
        self.method, self.view, self.privacy, self.device = method, view, setup.privacy, setup.device
        if setup.privacy is not None and (problem := method.privacy_problem()):
            raise ConfigError(f"{method.name} cannot be combined with a privacy stage: {problem}.")
        self.logits = method.logits
        counts = torch.from_numpy(view.positives.counts)
        self.task = Task(view.n_clients, view.n_items, counts, setup.seed, self.device)
        self.ledger = Ledger(view.n_clients)
        self.sampler = Sampler(view, self.device)
        self.cohort_samples = cohort_samples or SAMPLES[self.device.type]
        self._order = size_order(counts)
        self.store = ClientStore(self._order, setup.store_folder)
        first = self._fresh(self._order[:1])
        self.private_bytes = view.n_clients * sum(t.numel() * t.element_size() for t in first.values())
        check_fits(method, self.private_bytes, self.device, on_disk=setup.store_folder is not None)
        largest = max((t.numel() * t.element_size() for t in first.values()), default=1)
        self._most = max(1, TABLES[self.device.type] // max(largest, 4 * view.n_items))
        for chunk in torch.split(self._order, self._most):
            self.store.fill(chunk, self._fresh(chunk))
        self.server = method.server_state(self.task)

    def _fresh(self, clients: Tensor) -> State:
        kept = self.method.own_data(self.view, clients)
        return self.method.client_state(self.task, clients) | {name: t.to(self.device) for name, t in kept.items()}

    def round(self, number: int) -> RoundReport:
        """Run one round; ``number`` counts from 0."""
        blocks = self.method.blocks(self.task)
        if blocks == 1:
            return self._run(number, number)
        whole, loss = RoundReport(), 0.0
        for block in range(blocks):
            report = self._run(number * blocks + block, number)
            whole.add(report)
            loss += report.loss * report.clients
        whole.loss = loss / max(1, whole.clients)
        return whole

    def _run(self, number: int, reported: int) -> RoundReport:
        """All arrows once: draw, broadcast, train, privacy, add up or collect, step."""
        method, task, report = self.method, self.task, RoundReport()
        losses: list[tuple[Tensor, Tensor]] = []
        with self._timed(report, "aggregation"):
            gathering = method.gather(task)
            chosen = method.participants(task, self.server, number)
        report.clients = len(chosen)
        for clients in self._cohorts(chosen):
            with self._timed(report, "sampling"):
                samples = self.sampler.draw(
                    clients, negatives=method.negatives, seed=task.seed, round=method.sampling_round(number)
                )
            with self._timed(report, "training"):
                payload = method.broadcast(task, self.server, clients)
                parts, loss = method.train(task, self.store.at(clients), payload, samples, number)
                check_shape(method, "train", "losses", loss, (len(clients),))
                if self.privacy is not None:
                    parts = self.privacy.apply(parts, clients.to(self.device), number)
                received, sent = (client_bytes(arrow, len(clients)) for arrow in (payload, parts))
            self.ledger.note(clients, number, sent=sent, received=received, uploaded=bool(parts))
            report.bytes_down += int(received.sum())
            report.bytes_up += int(sent.sum())
            losses.append((clients, loss))
            with self._timed(report, "aggregation"):
                weights = task.counts[clients].to(self.device, torch.float32)
                gathering.add(Upload(clients, weights, parts))
        with self._timed(report, "aggregation"):
            self.server = gathering.step(self.server, number)
        report.loss = self._mean_loss(losses, reported)
        return report

    def _cohorts(self, chosen: Tensor) -> list[Tensor]:
        sizes = self.task.counts * (1 + self.method.negatives)
        kinds = self.method.kinds(self.task, self.server, chosen)
        waste = WASTE[self.device.type]
        return cohorts(chosen, sizes, kinds, samples=self.cohort_samples, most=self._most, waste=waste)

    def _mean_loss(self, losses: list[tuple[Tensor, Tensor]], round: int) -> float:
        if not losses:
            return float("nan")
        clients, loss = torch.cat([c for c, _ in losses]), torch.cat([v for _, v in losses]).cpu()
        if not bool(torch.isfinite(loss).all()):
            client = int(clients[~torch.isfinite(loss)][0])
            raise FedrecError(
                f"training diverged in round {round + 1}: the loss of client {client} is not finite; "
                f"{self.method.when_diverged}."
            )
        return float(loss.double().mean())

    @property
    def views(self) -> tuple[str, ...]:
        """Other ways to score that the method wants reported."""
        return self.method.views

    def scores(self, clients: Tensor, view: str | None = None) -> Tensor:
        """Scores [c, m] of any clients with the current state."""
        kinds = self._kinds(clients)
        if kinds is None:
            return self._scores(clients, view)
        out = torch.empty(len(clients), self.task.n_items, device=self.device)
        for chosen in kinds:
            out[chosen.to(self.device)] = self._scores(clients[chosen], view)
        return out

    def _kinds(self, clients: Tensor) -> list[Tensor] | None:
        """Positions of the clients of each kind; None where all are of one."""
        kinds = self.method.kinds(self.task, self.server, clients)
        if kinds is None:
            return None
        return [(kinds == value).nonzero()[:, 0].cpu() for value in torch.unique(kinds).tolist()]

    def _scores(self, clients: Tensor, view: str | None) -> Tensor:
        blocks = []
        for part in torch.split(clients, self._most):
            private, payload = self.store.at(part), self.method.broadcast(self.task, self.server, part)
            if view is None:
                found = self.method.scores(self.task, private, payload)
            else:
                found = self.method.view_scores(self.task, view, private, payload)
            check_shape(self.method, "scores", "scores", found, (len(part), self.task.n_items))
            blocks.append(found)
        return blocks[0] if len(blocks) == 1 else torch.cat(blocks)

    def mixtures(self, clients: Tensor) -> Iterator[tuple[Tensor, Mixture]]:
        """What the item tables of any clients are made of, block by block; nothing where clients do not merge."""
        for chosen in self._kinds(clients) or [torch.arange(len(clients))]:
            for part in torch.split(clients[chosen], self._most):
                private, payload = self.store.at(part), self.method.broadcast(self.task, self.server, part)
                found = self.method.mixture(self.task, private, payload)
                if found is None:
                    return
                check_shape(self.method, "mixture", "shares", found.share, (len(part), self.task.n_items))
                yield part, found

    @property
    def client_order(self) -> Tensor:
        """Clients in storage order, in which reading their state needs no copy."""
        return self._order

    def diagnostics(self) -> dict[str, Any]:
        """What the method has to say."""
        return self.method.diagnostics(self.task, self.server, self.ledger)

    def client_groups(self) -> dict[str, Tensor]:
        """Named groups of clients whose results are reported apart."""
        return self.method.client_groups(self.task)

    @property
    def most_uploads(self) -> int:
        """Uploads of the client that sent most so far."""
        return int(self.ledger.uploads.max()) if self.task.n_clients else 0

    def state(self) -> dict[str, Tensor]:
        """Everything a later round depends on, by name."""
        server = {f"server.{name}": value for name, value in self.server.items()}
        clients = {f"clients.{name}": value for name, value in self.store.tensors.items()}
        return server | clients | {f"ledger.{name}": value for name, value in self.ledger.state().items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Continue from a saved state."""
        for key, value in state.items():
            if key.startswith("server."):
                name = key.removeprefix("server.")
                # Some server tensors live on the CPU on purpose, so each goes back to where it was.
                self.server[name] = value.to(self.server[name].device, copy=True)
        self.ledger.load_state({name: state[f"ledger.{name}"] for name in self.ledger.state()})
        for name, stored in self.store.tensors.items():
            stored.copy_(state[f"clients.{name}"])

    @contextmanager
    def _timed(self, report: RoundReport, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
            report.seconds[name] = report.seconds.get(name, 0.0) + time.perf_counter() - start


def check_fits(method: Arrows, private: int, device: torch.device, *, on_disk: bool) -> None:
    """Refuse a run whose client state cannot fit, with the numbers."""
    needed = private + method.server_bytes(private)
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
