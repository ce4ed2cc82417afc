"""The server of nested models: pad and sum what clients of every size sent, move the tables, distil their relations."""

from __future__ import annotations

import torch
from torch import Tensor

from fedrec.compute import graphs
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
_ON_CPU = ("group", "steps")


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
        if not total:
            return server
        inputs, known = self._inputs(task, server, total, round), [name for name in server if name not in _ON_CPU]

        def step(*tensors: Tensor) -> tuple[Tensor, ...]:
            new = self._step(task, dict(zip(inputs, tensors, strict=True)), round)
            return tuple(new[name] for name in known)

        # A draw of rows in the middle, or torch's Adam, cannot be recorded.
        recorded = self.config.ddr_rows == 1 and self.config.reskd_optimizer == "sgd"
        call = graphs.kept(task, self, *inputs) if recorded else lambda function, *tensors: function(*tensors)
        moved = server | dict(zip(known, call(step, *inputs.values()), strict=True))
        return moved | {"steps": server["steps"] + 1} if "steps" in server else moved

    def _inputs(self, task: Task, server: State, total: Total, round: int) -> State:
        """All that a step works on, by name and on the device: the server's state, the sums, the items to distil."""
        c, device = self.config, task.device
        inputs = {f"server.{name}": value for name, value in server.items() if name not in _ON_CPU}
        counts = [name for name in total if total[name].dim() == 0]
        on_device = torch.tensor([float(total[name]) for name in counts], dtype=torch.float64, device=device)
        inputs |= {name: total[name] for name in total if name not in counts} | dict(
            zip(counts, on_device, strict=True)
        )
        if "steps" in server:
            inputs["steps"] = (server["steps"] + 1).to(device)
        if self.roles.reskd and len(self.roles.trained) > 1 and (round + 1) % c.reskd_every == 0:
            inputs["distilled"] = distillation.draw_items(task.n_items, c.reskd_items, task.seed, round, device)
        return inputs

    def _step(self, task: Task, given: State, round: int) -> State:
        c, roles, prefix = self.config, self.roles, "server."
        server = {name.removeprefix(prefix): value for name, value in given.items() if name.startswith(prefix)}
        tables = padding.PaddedSum(given, "items", c.sizes, task.n_items, task.device)
        if roles.ddr and c.local == "gradient":
            for size in roles.trained[1:]:
                tables.add_constant(size, self._decorrelating(server[f"items{size}"], task.seed, round))
        changes = {f"items{size}": tables.combined(size, roles.rule, roles.padded) for size in roles.trained}
        for name in (f"theta{size}" for size in roles.trained):
            if name in given:
                changes[name] = given[name] if roles.rule == "sum" else given[name] / given[f"{name}.clients"].trunc()
        moved = self._moved(server, changes, given.get("steps"))
        return moved if "distilled" not in given else self._distilled(moved, given["distilled"])

    def _decorrelating(self, table: Tensor, seed: int, round: int) -> Tensor:
        """What decorrelation adds to each client's change; the same for all of a size, so the server computes it."""
        whole = table.detach().clone().requires_grad_()
        with torch.enable_grad():
            part = decorrelated_part(self.config, whole, seed, round)
        (gradient,) = torch.autograd.grad(part, whole, decorrelation.penalty_gradient(part.detach()))
        return -float(self.config.alpha) * gradient

    def _moved(self, server: State, changes: State, steps: Tensor | None) -> State:
        new = dict(server)
        for name, change in changes.items():
            if steps is not None:
                first, second = (server[f"{name}.{moment}"] for moment in _MOMENTS)
                change, new[f"{name}.first"], new[f"{name}.second"] = adam(change, first, second, steps, SERVER_BETA2)
            new[name] = server[name] + self.roles.rate(name) * change
        return new

    def _distilled(self, server: State, items: Tensor) -> State:
        c = self.config
        names = [f"items{size}" for size in self.roles.trained]
        new = distillation.distil(
            [server[name] for name in names],
            items,
            lr=c.reskd_lr,
            steps=c.reskd_steps,
            optimizer=c.reskd_optimizer,
            relation=c.relation,
        )
        return server | dict(zip(names, new, strict=True))
