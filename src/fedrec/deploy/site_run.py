"""One run at a site: the clients' half of the federation for the users who live here."""

from __future__ import annotations

import sys
from functools import partial

import torch
from torch import Tensor

from fedrec.deploy.hidden import FEWEST, Hidden, as_message
from fedrec.deploy.message import BadMessageError, Message
from fedrec.deploy.parts import Download, pack_uploads
from fedrec.deploy.site_data import widened
from fedrec.deploy.site_store import SiteStore
from fedrec.deploy.sums import metric_sums
from fedrec.errors import ConfigError
from fedrec.evaluation.evaluator import Evaluation, Evaluator
from fedrec.federation.arrows import Arrows
from fedrec.federation.central_privacy import CentralStage
from fedrec.federation.clients import Clients
from fedrec.federation.method import EachMethod, Sums, Uploads
from fedrec.federation.stages import noise_from, stage_of
from fedrec.federation.task import Task
from fedrec.federation.total import Total
from fedrec.federation.trainer import RoundReport, Setup
from fedrec.methods import rebuild

LAST = sys.maxsize
"""Later than any round."""


class SiteRun:
    """Private state of a site's users in a run, and what they do when the server asks."""

    def __init__(self, store: SiteStore, smallest: int, *, sums_only: bool = False, secure_only: bool = False) -> None:
        """Open what the site keeps of a run that has been started; ``smallest`` is the smallest group that is told of.

        A site that sends ``sums_only`` refuses methods whose server needs every upload, and sums over a smaller group;
        one that takes part in secure sums only, whatever would leave it without a mask.
        """
        self.store, self.smallest, self.sums_only, self.secure_only = store, smallest, sums_only, secure_only
        self._hidden: Hidden | None = None
        setup, counts = store.setup()
        self.split, self.first = store.split(), int(setup["first"])
        n = len(counts)
        method = rebuild(setup["method"], setup["config"])
        assert isinstance(method, Arrows)
        if sums_only and isinstance(method, EachMethod):
            raise ConfigError(f"this site sends sums only, and the server of {method.name} needs every upload")
        self.method = method
        stage = None
        if setup["privacy"] is not None:
            stage = stage_of(noise_from(setup["privacy"]), setup["seed"], 1 / setup["noise_among"])
        self.central = isinstance(stage, CentralStage)
        self.among = max(FEWEST, setup["noise_among"] if self.central else 0)
        self.task = Task(n, self.split.data.n_items, counts, setup["seed"], torch.device("cpu"), self.central)
        own = torch.arange(self.first, self.first + self.split.data.n_users)
        if not torch.equal(counts[own], torch.from_numpy(self.split.training.positives.counts)):
            raise BadMessageError("its counts are not those of this site's users")
        view = widened(self.split.training, self.first, n)
        self.clients = Clients(self.method, view, self.task, Setup(setup["seed"], privacy=stage), share=own)
        self.own, self.fresh, self.number = own, self._copy(), -1  # nothing is loaded

    def _copy(self) -> dict[str, Tensor]:
        return {name: value.clone() for name, value in self.clients.state().items()}

    def begin(self) -> None:
        """Keep the state before the first round, with the secrets that noise follows from: none is drawn twice.

        A run that goes on has some state already, if not that of its beginning, and keeps it.
        """
        if self.store.state(LAST) is None:
            self.store.save_state(0, self.fresh, [0])

    def go_to(self, number: int) -> None:
        """Go back to the newest state of no more than ``number`` rounds."""
        found = self.store.state(number)
        if found is not None and found[0] == self.number:
            return
        self.number, state = found or (0, self.fresh)
        self.clients.load_state(state)

    def train(self, message: Message) -> Message:
        """One round of the site's participants: a partial sum, or their uploads."""
        number = message.integer("number")
        chosen = message.tensor("chosen", torch.int64, None)
        self._check(chosen)
        self.go_to(number)
        download, gathering, report = (
            Download.unpack(message, self.task.n_clients),
            self.method.gather(self.task),
            RoundReport(),
        )
        secure = self._secure(message)
        if self.central and not secure:
            raise ConfigError("noise on sums protects nobody whose site's sum is seen alone; it needs a secure sum")
        losses = self.clients.train(chosen, number, download, gathering, report)
        told = Total()
        told.add("clients", float(len(chosen)))
        # Where sums have noise, a loss without would tell more; one that is not finite is still seen.
        told.add("loss", sum(float(loss.double().sum()) for _, loss in losses) * (0.0 if self.central else 1.0))
        told.add("bytes_up", float(report.bytes_up))
        told.add("bytes_down", float(report.bytes_down))
        self.store.save_state(number + 1, self.clients.state(), message.fields.get("keep", []))
        self.number = number + 1
        fields = {"run": self.store.run, "number": number, "seconds": report.seconds}
        tensors = {f"report.{name}": value for name, value in told.items()}
        if isinstance(gathering, Sums):
            tensors |= {f"total.{name}": value for name, value in gathering.total.items()}
        else:
            assert isinstance(gathering, Uploads)
            fields["cohorts"], uploads = pack_uploads(gathering.uploads)
            tensors |= uploads
        return self._told(Message("trained", fields, tensors), secure, self.among)

    def _secure(self, message: Message) -> bool:
        """Whether what is asked for leaves the site masked only."""
        secure = message.fields.get("secure") is True
        if secure and isinstance(self.method, EachMethod):
            raise ConfigError(f"the server of {self.method.name} needs every upload, which a secure sum does not tell")
        if self.secure_only and not secure:
            raise ConfigError("this site takes part in secure sums only")
        return secure

    def _told(self, reply: Message, secure: bool, among: int = FEWEST) -> Message:
        """The reply, or in its place that the site is ready to add its numbers to a secure sum."""
        self._hidden = Hidden(reply.integer("number"), reply.tensors, among) if secure else None
        return Message(reply.kind, reply.fields) if secure else reply

    def masked(self, message: Message) -> Message:
        """The next step of a secure sum."""
        number = message.integer("number")
        if self._hidden is None or self._hidden.number != number:
            raise BadMessageError(f"it has nothing to add to a secure sum of round {number}")
        return as_message(self.store.run, number, self._hidden.answer(message))

    def evaluate(self, message: Message) -> Message:
        """Rank the held-out items of the site's users; sums over them, and how often which item is in a top 10."""
        number = message.integer("number")
        self.go_to(number)
        secure, download = self._secure(message), Download.unpack(message, self.task.n_clients)
        groups = message.tensor("groups", torch.bool, None, len(self.own))
        evaluator = Evaluator(self.split, logits=self.method.logits)
        found: dict[str, Evaluation] = {}
        for view in (None, *self.method.views):
            scorer = partial(self._scores, download, view)
            for part, value in evaluator.evaluate(scorer, "validation", "test").items():
                found[part if view is None else f"{part}@{view}"] = value
        sums = metric_sums(found, groups, self.smallest)
        tensors = {"sums.values": sums.values, "sums.users": sums.users}
        if message.fields.get("top"):
            top = evaluator.top(partial(self._scores, download, None), 10)
            shown = torch.bincount(top[top >= 0], minlength=self.task.n_items).double()
            tensors["sums.shown"] = shown * (len(self.own) >= self.smallest)
        fields = {"run": self.store.run, "number": number, "names": sums.names}
        return self._told(Message("evaluated", fields, tensors), secure)

    def finish(self, message: Message) -> Message:
        """Keep the state of the selected round and what the users download, to recommend with."""
        number = message.integer("number")
        self.go_to(number)
        self.store.save_state(self.number, self.clients.state(), [self.number])
        self.store.save_download(message.encode())
        return Message("finished", {"run": self.store.run, "number": self.number})

    def _scores(self, download: Download, view: str | None, users: Tensor) -> Tensor:
        return self.clients.scores(users + self.first, download, view)

    def _check(self, chosen: Tensor) -> None:
        if len(chosen) and not self.first <= int(chosen.min()) <= int(chosen.max()) < self.first + len(self.own):
            raise BadMessageError("it names clients that do not live at this site")
        if len(torch.unique(chosen)) < len(chosen):  # who is in a sum twice moves it by more than was accounted for
            raise BadMessageError("it names a client twice")
        if self.sums_only and len(chosen) < self.smallest:
            raise BadMessageError(
                f"a sum over {len(chosen)} users would tell of each of them; {self.smallest} are needed"
            )
