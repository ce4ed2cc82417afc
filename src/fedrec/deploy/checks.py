"""Whether what a site sends can be what it must: form, numbers, clients and size. One hostile answer poisons nothing."""

from __future__ import annotations

import torch
from torch import Tensor

from fedrec.deploy.message import BadMessageError, Message
from fedrec.deploy.parts import unpack_uploads
from fedrec.deploy.sums import MetricSums
from fedrec.federation.arrows import Arrows, Gathering
from fedrec.federation.method import Sums, Uploads
from fedrec.federation.server import Server
from fedrec.federation.task import Task
from fedrec.federation.total import Total

REPORT = ("clients", "loss", "bytes_up", "bytes_down")


class Checker:
    """Knows what sites have sent so far."""

    def __init__(self, method: Arrows, task: Task) -> None:
        """Nothing has come yet."""
        self.method, self.task = method, task

    def check(self, reply: Message, chosen: Tensor, server: Server) -> None:
        """Refuse what cannot be the work of these clients."""
        for name in REPORT:
            if not bool(reply.tensor(f"report.{name}", torch.float64).isfinite()):
                raise BadMessageError(f"its {name} is not finite")

    def outliers(self, replies: dict[str, Message]) -> dict[str, str]:
        """Sites whose answers are far too large beside those of others, and why."""
        return {}

    def accept(self, replies: dict[str, Message]) -> None:
        """Remember what was used."""

    def take(self, reply: Message, gathering: Gathering) -> dict[str, Tensor]:
        """Add a checked answer to the round; returns what the site reports."""
        if isinstance(gathering, Sums):
            gathering.total = gathering.total.merge(Total(reply.group("total")))
        else:
            assert isinstance(gathering, Uploads)
            gathering.uploads += unpack_uploads(reply, self.task.counts, self.task.n_items)
        return reply.group("report")

    def metrics(self, reply: Message, groups: int, others: MetricSums | None) -> MetricSums:
        """Sums of metrics of the right form."""
        names = reply.fields.get("names")
        if not isinstance(names, list) or (others is not None and names != others.names):
            raise BadMessageError("its metrics are other ones")
        values = reply.tensor("sums.values", torch.float64, len(names), groups)
        users = reply.tensor("sums.users", torch.float64, len(names), groups)
        if not bool(
            values.isfinite().all() & users.isfinite().all() & (users >= 0).all() & (values <= users + 1e-6).all()
        ):
            raise BadMessageError("its metrics are no means over users")
        return MetricSums(names, values, users)
