"""One federation on one machine: rounds over cohorts of clients, with bytes and time counted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedrec.compute.memory import available
from fedrec.data.training import TrainingView
from fedrec.errors import ConfigError, FedrecError
from fedrec.federation.cohorts import SAMPLES, TABLES, WASTE, cohorts, size_order
from fedrec.federation.method import Method, Task, participation_rng
from fedrec.federation.payload import State, Upload, client_bytes
from fedrec.federation.privacy import PrivacyStage
from fedrec.federation.store import ClientStore
from fedrec.federation.trainer import RoundReport
from fedrec.sampling.negatives import Sampler


class Simulation:
    """Runs a method round by round over all clients of a training view."""

    def __init__(
        self,
        method: Method,
        view: TrainingView,
        *,
        seed: int = 0,
        device: torch.device | str = "cpu",
        privacy: PrivacyStage | None = None,
        store_folder: Path | None = None,
        cohort_samples: int | None = None,
    ) -> None:
        """Set up server and clients; ``cohort_samples`` bounds the padded samples of a cohort (results do not depend on it)."""
        self.method, self.view, self.privacy = method, view, privacy
        if privacy is not None and (problem := method.privacy_problem()):
            raise ConfigError(f"{method.name} cannot be combined with a privacy stage: {problem}.")
        self.uploads = torch.zeros(view.n_clients, dtype=torch.int64)
        self.device = torch.device(device)
        self.logits = method.logits
        counts = torch.from_numpy(view.positives.counts)
        self.task = Task(view.n_clients, view.n_items, counts, seed, self.device)
        self.sampler = Sampler(view, self.device)
        self.cohort_samples = cohort_samples or SAMPLES[self.device.type]
        self._order = size_order(counts)
        self.store = ClientStore(self._order, store_folder)
        first = self._fresh(self._order[:1])
        self.private_bytes = view.n_clients * sum(t.numel() * t.element_size() for t in first.values())
        check_fits(method, self.private_bytes, self.device, on_disk=store_folder is not None)
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
        report = RoundReport()
        losses: list[tuple[Tensor, Tensor]] = []
        with _timed(report, "aggregation", self.device):
            # Cohorts train while the method folds their uploads, so the time of both is taken apart below.
            self.server = self.method.aggregate(self.server, self._uploads(number, report, losses), number)
        report.seconds["aggregation"] -= sum(v for k, v in report.seconds.items() if k != "aggregation")
        report.loss = self._mean_loss(losses, number)
        return report

    def round_name(self, number: int) -> str:
        """What a user calls this round."""
        return f"round {number + 1}"

    def _uploads(self, number: int, report: RoundReport, losses: list[tuple[Tensor, Tensor]]) -> Iterator[Upload]:
        method, task = self.method, self.task
        chosen = method.participants(task, self.server, number, participation_rng(task.seed, number))
        report.clients = len(chosen)
        kinds = method.kinds(self.server, chosen)
        sizes = task.counts * (1 + method.negatives)
        server = self.server
        limits = {"samples": self.cohort_samples, "most": self._most, "waste": WASTE[self.device.type]}
        for clients in cohorts(chosen, sizes, kinds, **limits):
            with _timed(report, "sampling", self.device):
                samples = self.sampler.draw(
                    clients, negatives=method.negatives, seed=task.seed, round=method.sampling_round(number)
                )
            with _timed(report, "training", self.device):
                payload = method.broadcast(server, clients)
                report.bytes_down += client_bytes(payload, len(clients))
                parts, loss = method.train(self.store.at(clients), payload, samples, number)
                if self.privacy is not None:
                    parts = self.privacy.apply(parts, clients.to(self.device), number)
                report.bytes_up += client_bytes(parts, len(clients))
            losses.append((clients, loss))
            if parts:
                self.uploads[clients.cpu()] += 1
            yield Upload(clients, task.counts[clients].to(self.device, torch.float32), parts)

    def _mean_loss(self, losses: list[tuple[Tensor, Tensor]], number: int) -> float:
        if not losses:
            return float("nan")
        clients, loss = torch.cat([c for c, _ in losses]), torch.cat([v for _, v in losses]).cpu()
        if not bool(torch.isfinite(loss).all()):
            client = int(clients[~torch.isfinite(loss)][0])
            rate = getattr(self.method.config, "lr", None)
            advice = f"lower lr (now {rate:g})" if rate else "check the settings"
            raise FedrecError(
                f"training diverged in {self.round_name(number)}: the loss of client {client} is not finite; {advice}."
            )
        return float(loss.double().mean())

    @property
    def views(self) -> tuple[str, ...]:
        """Other ways to score that the method wants reported."""
        return self.method.views

    def scores(self, clients: Tensor, view: str | None = None) -> Tensor:
        """Scores [c, m] of any clients with the current state."""
        kinds = self.method.kinds(self.server, clients)
        if kinds is None:
            return self._scores(clients, view)
        out = torch.empty(len(clients), self.task.n_items, device=self.device)
        for value in torch.unique(kinds).tolist():
            chosen = (kinds == value).nonzero()[:, 0].cpu()
            out[chosen.to(self.device)] = self._scores(clients[chosen], view)
        return out

    def _scores(self, clients: Tensor, view: str | None) -> Tensor:
        blocks = []
        for part in torch.split(clients, self._most):
            state, payload = self.store.at(part), self.method.broadcast(self.server, part)
            if view is None:
                blocks.append(self.method.scores(state, payload))
            else:
                blocks.append(self.method.view_scores(view, state, payload))
        return blocks[0] if len(blocks) == 1 else torch.cat(blocks)

    @property
    def client_order(self) -> Tensor:
        """Clients in storage order, in which reading their state needs no copy."""
        return self._order

    def diagnostics(self) -> dict[str, Any]:
        """What the method has to say."""
        return self.method.diagnostics(self.task, self.server)

    def client_groups(self) -> dict[str, Tensor]:
        """Named groups of clients whose results are reported apart."""
        return self.method.client_groups(self.task)

    @property
    def most_uploads(self) -> int:
        """Uploads of the client that sent most so far."""
        return int(self.uploads.max()) if len(self.uploads) else 0

    def state(self) -> dict[str, Tensor]:
        """Everything a later round depends on, by name."""
        server = {f"server.{name}": value for name, value in self.server.items()}
        clients = {f"clients.{name}": value for name, value in self.store.tensors.items()}
        return server | clients | {"engine.uploads": self.uploads}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Continue from a saved state."""
        for key, value in state.items():
            if key.startswith("server."):
                name = key.removeprefix("server.")
                # Some server tensors live on the CPU on purpose, so each goes back to where it was.
                self.server[name] = value.to(self.server[name].device, copy=True)
        self.uploads = state["engine.uploads"].cpu().clone()
        for name, stored in self.store.tensors.items():
            stored.copy_(state[f"clients.{name}"])


@contextmanager
def _timed(report: RoundReport, name: str, device: torch.device) -> Iterator[None]:
    start = time.perf_counter()
    try:
        yield
    finally:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        report.seconds[name] = report.seconds.get(name, 0.0) + time.perf_counter() - start


def check_fits(method: Method, private: int, device: torch.device, *, on_disk: bool) -> None:
    """Refuse a run whose client state cannot fit, with the numbers."""
    needed = private + method.server_bytes(private)
    have = available(device)
    if not on_disk and needed > have:
        raise ConfigError(
            f"{method.name} needs about {needed / 1e9:.1f} GB for its state, but {have / 1e9:.1f} GB are free on "
            f"{device}; lower dim, filter the data, or keep client state on disk (store=disk)."
        )
