"""One simulated federation: both halves in one process, or in several that deal the clients out; bytes and time are counted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from fedrec.data.training import TrainingView
from fedrec.errors import FedrecError
from fedrec.federation.arrows import Arrows
from fedrec.federation.central_privacy import CentralStage
from fedrec.federation.clients import Clients, mean_loss, timed
from fedrec.federation.mixture import Mixture, describe_shares
from fedrec.federation.payload import State
from fedrec.federation.server import Server
from fedrec.federation.shares import Shares
from fedrec.federation.task import Task
from fedrec.federation.trainer import RoundReport, Setup


class Simulation:
    """Runs a method round by round over all clients of a training view."""

    def __init__(
        self, method: Arrows, view: TrainingView, setup: Setup | None = None, *, cohort_samples: int | None = None
    ) -> None:
        """Set up server and clients; ``cohort_samples`` bounds the padded samples of a cohort (results do not depend on it)."""
        if not isinstance(method, Arrows):
            raise FedrecError(f"{method.name} is centralised and cannot run as a federation; use its own trainer.")
        setup = setup or Setup()
        self.method, self.device, self.logits = method, setup.device, method.logits
        counts = torch.from_numpy(view.positives.counts)
        noised = isinstance(setup.privacy, CentralStage)
        self.task = Task(view.n_clients, view.n_items, counts, setup.seed, self.device, noised)
        self.shares = setup.shares or Shares(counts)
        share = None if self.shares.alone else self.shares.own
        self.clients = Clients(method, view, self.task, setup, share=share, cohort_samples=cohort_samples)
        self._one_secret()
        self.store, self.ledger, self.sampler = self.clients.store, self.clients.ledger, self.clients.sampler
        self.private_bytes = int(self.shares.sums(self.clients.private_bytes)[0])
        self.most_uploads = 0
        self.half = Server(method, self.task)

    def _one_secret(self) -> None:
        """All processes make noise from the secrets of the first one, so that each knows any client's, and that of a sum."""
        stage, peers = self.clients.privacy, self.shares.peers
        self.clients.seals = self.shares.alone
        if stage is not None and not self.shares.alone:
            stage.load_state({name: peers.gather(value)[0] for name, value in stage.state().items()})

    @property
    def server(self) -> State:
        """The server's state."""
        return self.half.state

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
        report = RoundReport()
        with timed(report, "aggregation", self.device):
            gathering = self.method.gather(self.task)
            chosen = self.shares.here(self.half.participants(number))
        losses = self.clients.train(chosen, number, self.half, gathering, report)
        with timed(report, "aggregation", self.device):
            if not self.shares.alone:
                gathering.exchange(self.shares.peers)
                self.clients.seal(gathering, number)
            self.half.step(gathering, number)
        self._share(report)
        report.loss = mean_loss(self.method, self.shares.losses(losses), reported)
        return report

    def _share(self, report: RoundReport) -> None:
        """Count what the other processes' clients did, too; time is this process's own."""
        own = int(self.ledger.uploads.max()) if self.task.n_clients else 0
        self.most_uploads = int(self.shares.most(own))
        costs = self.shares.sums(report.clients, report.bytes_up, report.bytes_down)
        report.clients, report.bytes_up, report.bytes_down = map(int, costs)

    @property
    def views(self) -> tuple[str, ...]:
        """Other ways to score that the method wants reported."""
        return self.method.views

    @property
    def folds_in(self) -> bool:
        """Whether scores can count items that came later."""
        return self.method.folds_in

    def scores(self, clients: Tensor, view: str | None = None, later: Tensor | None = None) -> Tensor:
        """Scores [c, m] of any clients with the current state, and with the items ``later`` [c, k] that came after."""
        self.shares.require(clients)
        return self.clients.scores(clients, self.half, view, later)

    @torch.no_grad()
    def scores_from(self, history: Tensor) -> Tensor:
        """Scores [c, m] of clients that were not there and have these items [c, W], oldest first, padded with -1."""
        return self.clients.scores_from(history, self.half)

    @torch.no_grad()
    def contributions(self, history: Tensor, items: Tensor) -> Tensor:
        """What every item of such a history adds to the scores of ``items`` [c, k], as [c, W, k]."""
        return self.clients.contributions(history, items, self.half)

    def mixtures(self, clients: Tensor) -> Iterator[tuple[Tensor, Mixture]]:
        """What the item tables of any clients are made of, block by block; nothing where clients do not merge."""
        return self.clients.mixtures(clients, self.half)

    @property
    def client_order(self) -> Tensor:
        """Clients in storage order, in which reading their state needs no copy."""
        return self.clients.order

    def diagnostics(self) -> dict[str, Any]:
        """What the method has to say, and where clients merge, how much of their tables is the server's."""
        found = self.method.diagnostics(self.task, self.server, self.shares.ledger(self.ledger))
        if not self.method.merges:
            return found
        mixtures = (mixture for _, mixture in self.mixtures(self.clients.order))
        return found | {"server_share": describe_shares(mixtures, self.shares.peers)}

    def client_groups(self) -> dict[str, Tensor]:
        """Named groups of clients whose results are reported apart."""
        return self.method.client_groups(self.task)

    def state(self) -> dict[str, Tensor]:
        """Everything a later round depends on, by name; of the clients that live in this process."""
        return {f"server.{name}": value for name, value in self.server.items()} | self.clients.state()

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Continue from a saved state."""
        prefix = "server."
        self.half.load_state({key.removeprefix(prefix): v for key, v in state.items() if key.startswith(prefix)})
        self.clients.load_state(state)
        self.most_uploads = int(self.ledger.uploads.max()) if self.task.n_clients else 0
