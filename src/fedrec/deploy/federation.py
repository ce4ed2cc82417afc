"""The server of a real federation: rounds and evaluations whose clients' half runs at sites."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedrec.data.interactions import Ids
from fedrec.deploy.checks import Checked, Checker
from fedrec.deploy.hidden import FEWEST
from fedrec.deploy.masked import check_sites, secure_total
from fedrec.deploy.members import Member, joined, members_of, opened
from fedrec.deploy.message import BadMessageError, Message, text_tensor
from fedrec.deploy.parts import pack_download
from fedrec.deploy.plan import Plan
from fedrec.deploy.site_data import digest
from fedrec.deploy.sums import MetricSums
from fedrec.deploy.transport import Transport
from fedrec.deploy.union import union
from fedrec.errors import FedrecError
from fedrec.evaluation.groups import sparsity_groups
from fedrec.federation.arrows import Arrows
from fedrec.federation.central_privacy import CentralPrivacy, calibrated
from fedrec.federation.clients import timed
from fedrec.federation.ledger import Ledger
from fedrec.federation.server import Server
from fedrec.federation.task import Task
from fedrec.federation.trainer import RoundReport

Tell = Callable[[str], None]
ATTEMPTS = 3
"""How often a round is asked for when too few sites answer."""


class Federation:
    """A method's server, and the sites that run its clients' half."""

    def __init__(self, method: Arrows, plan: Plan, transport: Transport, tell: Tell) -> None:
        """``tell`` is told, in one line each, what an operator wants to know."""
        self.method, self.plan, self.transport, self.tell = method, plan, transport, tell
        self.members: list[Member] = []
        self.device = torch.device("cpu")
        self.private_bytes = 0
        self.keep: Collection[int] = ()
        """Rounds whose private state sites must keep: those of checkpoints, and the best one."""

    def gather(self, expected: list[str], known: list[Member] | None = None) -> None:
        """Ask the sites to join, number their users, and tell them what the run is; ``known`` members keep theirs."""
        names = [member.name for member in known] if known else expected
        self._wait_for(names)
        if self.plan.hashed and not self.plan.catalogue:
            self.plan = replace(self.plan, catalogue=self._union(names))
        catalogue = text_tensor(list(self.plan.catalogue))
        fields = {
            "run": self.plan.run,
            "protocol": self.plan.protocol.model_dump(mode="json"),
            "seed": self.plan.split_seed,
            "hashed": self.plan.hashed,
        }
        replies = self._ask({name: Message("join", fields, {"catalogue": catalogue}) for name in names})
        sound: dict[str, Message] = {}
        for name in names:
            try:
                sound[name] = joined(replies[name], digest(self.plan.catalogue))
                self._check_known(name, sound[name], known)
                self._tell_of(name, sound[name])
            except BadMessageError as error:
                sound.pop(name, None)
                self.tell(f"site {name} does not take part: {error}")
        if len(sound) < self.plan.min_sites:
            raise FedrecError(f"{len(sound)} of {len(names)} sites joined, and the run needs {self.plan.min_sites}.")
        self.members = known or members_of(sound)
        counts = torch.cat([member.counts for member in self.members])
        self.task = Task(len(counts), len(self.plan.catalogue), counts, self.plan.seed, self.device, self.plan.central)
        if isinstance(self.plan.privacy, CentralPrivacy):
            noise = calibrated(self.plan.privacy, self.method, self.task, self.plan.rounds)
            self.plan = replace(self.plan, privacy=noise, min_sites=self._noise_among())
        self.server, self.ledger = Server(self.method, self.task), Ledger(len(counts))
        self.checker = Checker(self.method, self.task, self.plan.privacy)
        self._start(list(sound))

    def _check_known(self, name: str, reply: Message, known: list[Member] | None) -> None:
        for member in known or ():
            if member.name == name and member.split_hash != reply.fields["split_hash"]:
                raise BadMessageError("its data have changed since the run began")

    def _tell_of(self, name: str, reply: Message) -> None:
        words = f"site {name} joined with {len(reply.tensors['counts'])} users"
        if left := reply.integer("items_left_out"):
            words += (
                f"; {left} of its items are not in the catalogue, so {reply.integer('rows_left_out')} rows are left out"
            )
        self.tell(words)

    def _wait_for(self, names: list[str]) -> None:
        """Wait until all sites are connected, or some have been waited for long enough."""
        end, told = time.monotonic() + self.plan.wait, False
        while missing := sorted(set(names) - set(self.transport.online())):
            if time.monotonic() > end:
                self.tell(f"not connected after {self.plan.wait:.0f} s: {', '.join(missing)}")
                return
            if not told:
                self.tell(f"waiting for {', '.join(missing)}")
                told = True
            time.sleep(min(0.5, self.plan.wait))

    def _start(self, names: list[str]) -> None:
        fields: dict[str, Any] = {"run": self.plan.run, "method": self.method.name, "seed": self.plan.seed}
        fields["config"] = self.method.describe_config()
        fields["privacy"] = None if self.plan.privacy is None else self.plan.privacy.model_dump(mode="json")
        fields["hashed"] = self.plan.hashed
        fields["noise_among"] = self._noise_among()
        requests = {
            member.name: Message("start", fields | {"first": member.first}, {"counts": self.task.counts})
            for member in self.members
            if member.name in names
        }
        for name, data in self._ask(requests).items():
            try:
                self.private_bytes += opened(data, "started", run=self.plan.run).integer("private_bytes")
            except BadMessageError as error:
                self.tell(f"site {name} could not start: {error}")

    def _union(self, names: list[str]) -> Ids:
        """The items of all sites, under hashes that only sites can make."""
        told = []
        for name, data in self._ask({name: Message("items", {"run": self.plan.run}) for name in names}).items():
            try:
                reply = opened(data, "items", run=self.plan.run)
                union([reply])
                told.append(reply)
            except BadMessageError as error:
                self.tell(f"site {name} does not tell its items: {error}")
        if not told:
            raise FedrecError("no site told its items, so there is no catalogue.")
        found = union(told)
        self.tell(f"{len(found)} items in the union of {len(told)} sites, under keyed hashes")
        return found

    def _noise_among(self) -> int:
        """How many sites' shares make the whole noise: as many as a sum has at least, so that it never has less."""
        return max(self.plan.min_sites, len(self.members) // 2 + 1, FEWEST)

    def _ask(self, requests: dict[str, Message]) -> Any:
        return self.transport.ask({name: message.encode() for name, message in requests.items()}, self.plan.deadline)

    def round(self, number: int) -> RoundReport:
        """Run one round; ``number`` counts from 0."""
        blocks = self.method.blocks(self.task)
        whole, loss = RoundReport(), 0.0
        for block in range(blocks):
            report = self._run(number * blocks + block, number)
            whole.add(report)
            loss += report.loss * report.clients if report.clients else 0.0
        whole.loss = loss / whole.clients if whole.clients else float("nan")
        return whole

    def _run(self, number: int, shown: int) -> RoundReport:
        """All arrows once; a site whose answer is late or cannot be used is left out of it."""
        report = RoundReport()
        chosen = self.server.participants(number)
        with timed(report, "training", self.device):
            gathering, loss = self.method.gather(self.task), 0.0
            answers, names = self._trained(chosen, number, shown)
        with timed(report, "aggregation", self.device):
            for answer in answers:
                answer.add_to(gathering)
                loss += answer.report["loss"]
                report.clients += int(answer.report["clients"])
                report.bytes_up += int(answer.report["bytes_up"])
                report.bytes_down += int(answer.report["bytes_down"])
            if private := self.plan.privacy is not None:
                self.ledger.uploads[chosen] += 1  # what was asked for may have been sent, used or not
            for name in names:
                who = self._own(name, chosen)
                nothing = torch.zeros(len(who), dtype=torch.int64)
                self.ledger.note(who, number, sent=nothing, received=nothing, uploaded=not private)
            self.server.step(gathering, number)
        report.loss = loss / report.clients if report.clients and not self.plan.central else float("nan")
        return report

    def _own(self, name: str, chosen: Tensor) -> Tensor:
        member = next(member for member in self.members if member.name == name)
        return chosen[(chosen >= member.first) & (chosen < member.first + len(member.counts))]

    def _trained(self, chosen: Tensor, number: int, shown: int) -> tuple[list[Checked], list[str]]:
        """The answers that can be used, and of which sites; where there are too few, all are asked again."""
        collect = self._hidden_answers if self.plan.secure else self._answers
        for attempt in range(ATTEMPTS):
            requests = self._training(chosen, number)
            answers, names = collect(requests, chosen, number, shown)
            needed = self.plan.min_sites if self.plan.central else min(self.plan.min_sites, len(requests))
            if len(names) >= needed:
                return answers, names
            self.tell(
                f"round {shown + 1}: {len(names)} of {len(requests)} sites answered, and {self.plan.min_sites} are needed"
                + ("; asking again" if attempt + 1 < ATTEMPTS else "")
            )
        raise FedrecError(
            f"round {shown + 1} failed {ATTEMPTS} times: too few sites answered; see that they run, then resume the run."
        )

    def _answers(
        self, requests: dict[str, Message], chosen: Tensor, number: int, shown: int
    ) -> tuple[list[Checked], list[str]]:
        sound: dict[str, Checked] = {}
        refused: dict[str, str] = {}
        for name, data in self._ask(requests).items():
            try:
                reply = opened(data, "trained", run=self.plan.run, number=number)
                sound[name] = self.checker.check(reply, self._own(name, chosen), self.server, chosen)
            except BadMessageError as error:
                refused[name] = str(error)
        refused |= self.checker.outliers(sound)
        for name, why in refused.items():
            sound.pop(name, None)
            self.tell(f"round {shown + 1}: going on without site {name}: {why}")
        if not sound and all(why == "its loss is not finite" for why in refused.values()):
            raise FedrecError(f"training diverged in round {shown + 1} at every site; {self.method.when_diverged}.")
        self.checker.last = sound or self.checker.last
        return list(sound.values()), list(sound)

    def _hidden_answers(
        self, requests: dict[str, Message], chosen: Tensor, number: int, shown: int
    ) -> tuple[list[Checked], list[str]]:
        """One answer, the secure sum over the sites that stayed to its end."""
        like = self.checker.sums(number, self.server, chosen)
        ready = self._ready(requests, "trained", number, f"round {shown + 1}: going on")
        if self.plan.central and len(ready) < self.plan.min_sites:
            return [], []  # a sum over fewer would have less noise than was promised
        reply, names = self._hidden_sum("trained", number, list(ready), like, f"round {shown + 1}")
        if reply is None:
            return [], []
        own = torch.cat([self._own(name, chosen) for name in names])
        return [self.checker.check(reply, own, self.server, chosen)], names

    def _ready(self, requests: dict[str, Message], kind: str, number: int, words: str) -> dict[str, Message]:
        """The sites that have something to add to a secure sum, and what they say beside it."""
        ready = {}
        for name, data in self._ask(requests).items():
            try:
                ready[name] = opened(data, kind, run=self.plan.run, number=number)
            except BadMessageError as error:
                self.tell(f"{words} without site {name}: {error}")
        return ready

    def _hidden_sum(
        self, kind: str, number: int, ready: list[str], like: dict[str, Tensor], words: str
    ) -> tuple[Message | None, list[str]]:
        """A message as one site would send it that holds all of them, or none where too few stayed."""
        try:
            check_sites(len(ready))
            total, names = secure_total(self._ask, self.tell, self.plan.run, number, ready, like, self.plan.min_sites)
        except FedrecError as error:
            self.tell(f"{words}: {error}")
            return None, []
        return Message(kind, {"number": number}, dict(total)), names

    def _training(self, chosen: Tensor, number: int) -> dict[str, Message]:
        """What the sites that have participants are asked."""
        requests = {}
        for member in self.members:
            if len(who := self._own(member.name, chosen)):
                blocks, tensors = pack_download(self.server, who)
                fields = {"run": self.plan.run, "number": number, "blocks": blocks, "keep": sorted(self.keep)}
                fields["secure"] = self.plan.secure
                requests[member.name] = Message("train", fields, tensors | {"chosen": who})
        return requests

    def evaluate(self, done: int, *, top: bool = False) -> tuple[MetricSums, Tensor | None]:
        """Sums of metrics over the users of all sites after ``done`` rounds, and how often which item is in a top 10."""
        number, groups = done * self.method.blocks(self.task), self.groups()
        requests = {}
        for member in self.members:
            blocks, tensors = pack_download(self.server, member.clients)
            fields = {"run": self.plan.run, "number": number, "blocks": blocks, "top": top}
            fields["secure"] = self.plan.secure
            own = torch.stack([group[member.clients] for group in groups.values()])
            requests[member.name] = Message("evaluate", fields, tensors | {"groups": own})
        whole: MetricSums | None = None
        shown = torch.zeros(self.task.n_items, dtype=torch.float64) if top else None
        for name, reply in self._evaluated(requests, number, done, len(groups), top).items():
            try:
                found = self.checker.metrics(reply, len(groups), whole)
                if shown is not None:
                    shown += self.checker.shown(reply)
                whole = found if whole is None else whole + found
            except BadMessageError as error:
                self.tell(f"evaluation after round {done}: without site {name}: {error}")
        if whole is None:
            raise FedrecError(f"no site could be evaluated after round {done}; see that they run, then resume the run.")
        return whole, shown

    def _evaluated(
        self, requests: dict[str, Message], number: int, done: int, groups: int, top: bool
    ) -> dict[str, Message]:
        """The sums of every site, or the one over all of them that a secure sum tells."""
        words = f"evaluation after round {done}"
        replies = self._ready(requests, "evaluated", number, f"{words}:")
        if not self.plan.secure or not replies:
            return replies
        names = next(iter(replies.values())).fields.get("names")
        ready = [name for name, reply in replies.items() if reply.fields.get("names") == names]
        rows = len(names) if isinstance(names, list) else 0
        like = {f"sums.{name}": torch.zeros(rows, groups, dtype=torch.float64) for name in ("values", "users")}
        if top:
            like["sums.shown"] = torch.zeros(self.task.n_items, dtype=torch.float64)
        reply, _ = self._hidden_sum("evaluated", number, ready, like, words)
        return {} if reply is None else {"of the secure sum": Message(reply.kind, {"names": names}, reply.tensors)}

    def groups(self) -> dict[str, Tensor]:
        """Who is in which group: everybody, the fifths by number of training items, those the method names."""
        n = self.task.n_clients
        found = {"everybody": torch.ones(n, dtype=torch.bool)}
        fifth = torch.from_numpy(sparsity_groups(self.task.counts.numpy()))
        found |= {f"fifth {k}": fifth == k for k in range(1, 6)}
        for name, clients in self.method.client_groups(self.task).items():
            found[f"group {name}"] = torch.zeros(n, dtype=torch.bool).index_fill(0, clients.cpu(), True)
        return found

    @property
    def most_uploads(self) -> int:
        """Uploads of the client that was asked for most so far."""
        return int(self.ledger.uploads.max())

    def finish(self, done: int) -> None:
        """Tell the sites which state to recommend with, and what their users download for it."""
        number = done * self.method.blocks(self.task)
        requests = {}
        for member in self.members:
            blocks, tensors = pack_download(self.server, member.clients)
            fields = {"run": self.plan.run, "number": number, "blocks": blocks}
            requests[member.name] = Message("finish", fields, tensors)
        for name, data in self._ask(requests).items():
            try:
                opened(data, "finished", run=self.plan.run)
            except BadMessageError as error:
                self.tell(f"site {name} did not get the finished model: {error}")

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint holds: the server's state, and the counts of what sites did."""
        server = {f"server.{name}": value for name, value in self.server.state.items()}
        return server | {f"ledger.{name}": value for name, value in self.ledger.state().items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Continue from a checkpoint."""
        prefix = "server."
        self.server.load_state({key.removeprefix(prefix): v for key, v in state.items() if key.startswith(prefix)})
        self.ledger.load_state({name: state[f"ledger.{name}"] for name in self.ledger.state()})
