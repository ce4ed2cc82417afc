"""The server of nested models: pad and sum what clients of every size sent, move the tables, distil their relations."""

from __future__ import annotations

import torch
from torch import Tensor

from fedrec.federation.payload import RowUpdate, State, Upload, tensor
from fedrec.federation.task import Task
from fedrec.federation.total import Total
from fedrec.methods.hetefedrec import decorrelation, distillation, padding
from fedrec.methods.hetefedrec.config import HeteFedRecConfig
from fedrec.methods.hetefedrec.local_work import adam, decorrelated_part
from fedrec.methods.hetefedrec.models import NestedModel
from fedrec.methods.hetefedrec.roles import Roles

SERVER_BETA2 = 0.98


_MOMENTS = ("first", "second")


def moments(public: State) -> State:
    """What Adam on the server remembers of its tables and predictors."""
    zeros = {f"{name}.{moment}": torch.zeros_like(value) for name, value in public.items() for moment in _MOMENTS}
    return zeros | {"steps": torch.zeros(())}


class NestedServer:
    """What the server does with a round's sums: move the tables and predictors of every size, then distil."""

    def __init__(self, config: HeteFedRecConfig, roles: Roles, model: NestedModel) -> None:
        """Read HeteFedRec's settings."""
        self.config, self.roles, self.model = config, roles, model

    def contribute(self, upload: Upload, total: Total) -> None:
        """Add a cohort's changes; the columns of its tables tell its size."""
        part = upload.parts["items"]
        columns = part.values.shape[2] if isinstance(part, RowUpdate) else tensor(upload.parts, "items").shape[2]
        size = self.config.sizes.index(columns)
        padding.add_sized(total, size, upload, "items")
        for name in (f"theta{smaller}" for smaller in self.model.tasks(size)):
            total.add(name, tensor(upload.parts, name).sum(0))
            total.add(f"{name}.clients", len(upload.clients))

    def updated(self, task: Task, server: State, total: Total, round: int) -> State:
        """``server`` after the sums of a round."""
        c, roles = self.config, self.roles
        if not total:
            return server
        tables = padding.PaddedSum(total, "items", c.sizes, task.n_items, task.device)
        if roles.ddr and c.local == "gradient":
            for size in roles.trained[1:]:
                tables.add_constant(size, self._decorrelating(server[f"items{size}"], task.seed, round))
        changes = {f"items{size}": tables.combined(size, roles.rule, roles.padded) for size in roles.trained}
        for name in (f"theta{size}" for size in roles.trained):
            if name in total:
                clients = int(total[f"{name}.clients"])
                changes[name] = total[name] if roles.rule == "sum" else total[name] / clients
        return self._distilled(task, self._moved(server, changes), round)

    def _decorrelating(self, table: Tensor, seed: int, round: int) -> Tensor:
        """What decorrelation adds to each client's change; the same for all of a size, so the server computes it."""
        whole = table.detach().clone().requires_grad_()
        with torch.enable_grad():
            part = decorrelated_part(self.config, whole, seed, round)
        (gradient,) = torch.autograd.grad(part, whole, decorrelation.penalty_gradient(part.detach()))
        return -float(self.config.alpha) * gradient

    def _moved(self, server: State, changes: State) -> State:
        new = dict(server)
        adaptive = self.config.server_optimizer == "adam"
        if adaptive:
            new["steps"] = server["steps"] + 1
        for name, change in changes.items():
            if adaptive:
                first, second = (server[f"{name}.{moment}"] for moment in _MOMENTS)
                steps = new["steps"].to(change.device)
                change, new[f"{name}.first"], new[f"{name}.second"] = adam(change, first, second, steps, SERVER_BETA2)
            new[name] = server[name] + self.roles.rate(name) * change
        return new

    def _distilled(self, task: Task, server: State, round: int) -> State:
        """Every ``reskd_every`` rounds."""
        c, trained = self.config, self.roles.trained
        if not self.roles.reskd or len(trained) == 1 or (round + 1) % c.reskd_every:
            return server
        names = [f"items{size}" for size in trained]
        tables = [server[name] for name in names]
        items = distillation.draw_items(len(tables[0]), c.reskd_items, task.seed, round, tables[0].device)
        new = distillation.distil(
            tables, items, lr=c.reskd_lr, steps=c.reskd_steps, optimizer=c.reskd_optimizer, relation=c.relation
        )
        return server | dict(zip(names, new, strict=True))
