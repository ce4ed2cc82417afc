"""Whether what a site sends can be what it must be: form, numbers, clients, size. One hostile answer poisons nothing.

What the right form is the server learns by running the method's own arrows on one made-up client per kind. How large an
answer may be it learns from the other sites: the sum over ``c`` clients is at most ``c`` times, and where clients
disagree about ``sqrt(c)`` times, one client's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedrec.data.training import Ragged, TrainingView
from fedrec.deploy.message import BadMessageError, Message, form
from fedrec.deploy.parts import unpack_uploads
from fedrec.deploy.sums import MetricSums
from fedrec.federation.arrows import Arrows, Gathering
from fedrec.federation.clients import Clients
from fedrec.federation.method import Sums, Uploads
from fedrec.federation.payload import Part, RowUpdate, Table, Upload
from fedrec.federation.server import Server
from fedrec.federation.stages import Noise, stage_of
from fedrec.federation.task import Task
from fedrec.federation.total import Total
from fedrec.federation.trainer import RoundReport, Setup

REPORT = ("clients", "loss", "bytes_up", "bytes_down")
"""What a site tells of a round, summed over its clients."""
TOO_LARGE = 20.0
"""How many times larger than the others' an answer may be."""


@dataclass(frozen=True, eq=False)
class Checked:
    """An answer that can be used."""

    content: Total | list[Upload]
    report: dict[str, float]
    norms: dict[str, float]
    """Of every part."""

    def add_to(self, gathering: Gathering) -> None:
        """Merge it with what other sites sent."""
        if isinstance(self.content, Total):
            assert isinstance(gathering, Sums)
            gathering.total = gathering.total.merge(self.content)
        else:
            assert isinstance(gathering, Uploads)
            gathering.uploads += self.content


class Checker:
    """Knows what answers must look like, and how large the last ones were."""

    def __init__(self, method: Arrows, task: Task, privacy: Noise | None = None) -> None:
        """Nothing has come yet."""
        self.method, self.task, self.privacy = method, task, privacy
        self.last: dict[str, Checked] = {}
        self._forms: tuple[int, Gathering] | None = None

    def check(self, reply: Message, chosen: Tensor, server: Server, everybody: Tensor) -> Checked:
        """The work of these clients, or a sentence about why it cannot be theirs."""
        model = self.model(reply.integer("number"), server, everybody)
        report = {name: _number(reply, name) for name in REPORT}
        if report["clients"] != len(chosen):
            raise BadMessageError(f"it trained {report['clients']:g} clients, not {len(chosen)}")
        if isinstance(model, Sums):
            total = Total(reply.group("total"))
            for name, value in total.items():
                _alike(f"sum of {name}", value, model.total.get(name))
            return Checked(total, report, {name: _norm([value]) for name, value in total.items()})
        assert isinstance(model, Uploads)
        uploads = unpack_uploads(reply, self.task.counts, self.task.n_items)
        _clients(uploads, chosen)
        for upload in uploads:
            _same_form(upload, model.uploads)
        names = {name for upload in uploads for name in upload.parts}
        norms = {n: _norm([_values(up.parts[n]) for up in uploads if n in up.parts]) for n in sorted(names)}
        return Checked(uploads, report, norms)

    def model(self, number: int, server: Server, everybody: Tensor) -> Gathering:
        """What an answer of a round looks like."""
        if self._forms is None or self._forms[0] != number:
            self._forms = number, rehearsal(self.method, self.task, server, number, everybody, self.privacy)
        return self._forms[1]

    def sums(self, number: int, server: Server, everybody: Tensor) -> dict[str, Tensor]:
        """The arrays that a site adds to a secure sum in a round."""
        model = self.model(number, server, everybody)
        assert isinstance(model, Sums)
        counts = {f"report.{name}": torch.zeros((), dtype=torch.float64) for name in REPORT}
        return counts | {f"total.{name}": value for name, value in model.total.items()}

    def outliers(self, found: dict[str, Checked]) -> dict[str, str]:
        """Sites whose answers are far too large beside those of others, and why."""
        refused = {}
        for site, answer in found.items():
            others = [other for name, other in found.items() if name != site] or list(self.last.values())
            for part, norm in answer.norms.items():
                limit = TOO_LARGE * _expected(part, answer.report["clients"], others)
                if limit and norm > limit:
                    refused[site] = (
                        f"its {part} has norm {norm:.3g}, and beside the others at most {limit:.3g} is plausible"
                    )
        return refused

    def metrics(self, reply: Message, groups: int, others: MetricSums | None) -> MetricSums:
        """Sums of metrics of the right form."""
        names: Any = reply.fields.get("names")
        if not _metric_names(names) or (others is not None and names != others.names):
            raise BadMessageError("its metrics are other ones")
        values = reply.tensor("sums.values", torch.float64, len(names), groups)
        users = reply.tensor("sums.users", torch.float64, len(names), groups)
        sound = values.isfinite() & users.isfinite() & (users >= 0) & (values >= 0) & (values <= users + 1e-6)
        if not bool(sound.all()):
            raise BadMessageError("its metrics are no means over users")
        return MetricSums(names, values, users)

    def shown(self, reply: Message) -> Tensor:
        """How often which item is in a top 10."""
        shown = reply.tensor("sums.shown", torch.float64, self.task.n_items)
        if not bool((shown.isfinite() & (shown >= 0)).all()) or float(shown.sum()) > 10 * self.task.n_clients:
            raise BadMessageError("its counts of shown items are no counts")
        return shown


def rehearsal(
    method: Arrows, task: Task, server: Server, number: int, chosen: Tensor, privacy: Noise | None = None
) -> Gathering:
    """What a round's answer looks like: that of one made-up client of every kind."""
    kinds = server.kinds(chosen)
    labels = torch.zeros(len(chosen), dtype=torch.int64) if kinds is None else kinds.cpu().long()
    picked = torch.stack([chosen[labels == label][0] for label in torch.unique(labels).tolist()])
    counts = np.zeros(task.n_clients, np.int64)
    counts[picked.numpy()] = 1
    items = Ragged(np.append(0, counts.cumsum()), np.zeros(len(picked), np.int32))
    view = TrainingView(task.n_clients, task.n_items, items, items, items)
    setup = Setup(task.seed, privacy=None if privacy is None else stage_of(privacy, task.seed))
    clients, gathering = Clients(method, view, task, setup, share=picked), method.gather(task)
    clients.train(picked, number, server, gathering, RoundReport())
    return gathering


def _metric_names(names: Any) -> bool:
    """Whether these are ``part|ranking|metric``, as ``MetricSums`` has them."""
    return (
        isinstance(names, list)
        and all(isinstance(name, str) for name in names)
        and all(re.fullmatch(r"[^|]+\|(sampled|full)\|[^|]+", name) for name in names)
    )


def _number(reply: Message, name: str) -> float:
    value = float(reply.tensor(f"report.{name}", torch.float64))
    if not math.isfinite(value):
        raise BadMessageError(f"its {name} is not finite")
    return value


def _alike(what: str, value: Tensor, model: Tensor | None) -> None:
    if model is None:
        raise BadMessageError(f"it sent a {what}, which nobody asked for")
    if value.shape != model.shape or value.dtype != model.dtype:
        raise BadMessageError(f"its {what} is {form(value)}, not {form(model)}")
    if not bool(torch.isfinite(value).all()):
        raise BadMessageError(f"its {what} has numbers that are not finite")


def _clients(uploads: list[Upload], chosen: Tensor) -> None:
    who = torch.cat([upload.clients for upload in uploads]) if uploads else torch.zeros(0, dtype=torch.int64)
    if len(torch.unique(who)) != len(who) or not bool(torch.isin(who, chosen).all()):
        raise BadMessageError("it sent uploads of clients that were not asked, or twice")


def _same_form(upload: Upload, models: list[Upload]) -> None:
    forms = [{name: _form(part) for name, part in model.parts.items()} for model in models]
    found = {name: _form(part) for name, part in upload.parts.items()}
    if found not in forms:
        raise BadMessageError(f"its uploads are {_words(found)}, not {' or '.join(map(_words, forms)) or 'wanted'}")
    for name, part in upload.parts.items():
        if not bool(torch.isfinite(_values(part)).all()):
            raise BadMessageError(f"its {name} has numbers that are not finite")


def _words(forms: dict[str, str]) -> str:
    return ", ".join(f"{name} {text}" for name, text in sorted(forms.items()))


def _form(part: Part) -> str:
    if isinstance(part, RowUpdate):
        return f"rows of {form(part.values[0, :1])}" if part.values.numel() else f"rows of width {part.values.shape[2]}"
    value = _values(part)
    return f"{'table' if isinstance(part, Table) else 'array'} of {form(value[0])} per client"


def _values(part: Part) -> Tensor:
    if isinstance(part, Tensor):
        return part
    return part.values if isinstance(part, RowUpdate) else part.value


def _norm(values: list[Tensor]) -> float:
    return math.sqrt(sum(float(value.double().square().sum()) for value in values))


def _expected(part: str, clients: float, others: list[Checked]) -> float:
    """The middle one, or the smaller of the two, of how large this part would be by the others' measure."""
    found = sorted(_scaled(part, clients, others))
    return found[(len(found) - 1) // 2] if found else 0.0


def _scaled(part: str, clients: float, others: list[Checked]) -> Iterator[float]:
    for other in others:
        if part in other.norms and other.report["clients"] and clients:
            ratio = clients / other.report["clients"]
            yield other.norms[part] * max(ratio, math.sqrt(ratio))
