"""Local work of a client with a nested model: one full-batch gradient, or epochs on all it holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import pad, softplus

from fedrec.compute import graphs
from fedrec.federation.store import ClientState
from fedrec.federation.task import Task
from fedrec.local.fit import BETA1, BETA2, EPS, Batch, Params, Schedule, Step, fit
from fedrec.methods.hetefedrec import decorrelation, distillation
from fedrec.methods.hetefedrec.config import HeteFedRecConfig
from fedrec.methods.hetefedrec.models import NestedModel
from fedrec.methods.hetefedrec.roles import Roles
from fedrec.sampling.samples import Samples


def row_bce(slots: Tensor, labels: Tensor, counts: Tensor, n_rows: int) -> Callable[[Tensor], Tensor]:
    """Each client's mean binary cross-entropy from logits of its rows [c, R]; equal samples share a row."""
    slots = slots.long()
    valid = torch.arange(slots.shape[1], device=slots.device) < counts[:, None]
    one = valid / counts.clamp(min=1)[:, None]
    zeros = torch.zeros(len(slots), n_rows, device=slots.device)
    positive = zeros.scatter_add(1, slots, one * labels)
    negative = zeros.scatter_add(1, slots, one * (1 - labels))
    return lambda logits: (positive * softplus(-logits) + negative * softplus(logits)).sum(1)


def full_gradient(
    model: NestedModel, params: Params, names: Sequence[str], size: int, samples: Samples, recorded: graphs.Recorded
) -> tuple[Params, Tensor]:
    """Gradients by the named parameters of each client's loss on all its samples, and the losses [c]."""

    def gradients(*tensors: Tensor) -> tuple[Tensor, ...]:
        given, (slots, labels, counts) = dict(zip(params, tensors, strict=False)), tensors[len(params) :]
        leaves = given | {name: given[name].detach().clone().requires_grad_() for name in names}
        loss = model.loss(leaves, size, None, row_bce(slots, labels, counts, given["block"].shape[1]))
        return *torch.autograd.grad(loss.sum(), [leaves[name] for name in names]), loss.detach()

    # Clients and rows that are only there to fill up have no samples, so that they add nothing.
    ragged = [2 if name in ("block", "positive") else 1 for name in params] + [2, 2, 1]
    inputs = *params.values(), samples.slots, samples.labels, samples.counts
    *found, loss = recorded(gradients, *inputs, ragged=ragged)
    own = {name: part[tuple(map(slice, params[name].shape))] for name, part in zip(names, found, strict=True)}
    return own, loss[: len(samples.counts)]


def adam(gradient: Tensor, first: Tensor, second: Tensor, steps: Tensor, beta2: float) -> tuple[Tensor, Tensor, Tensor]:
    """Adam's move for a gradient, and the new moments."""
    # Not the move of ``fedrec.local.fit``, which works in place, on tensors it owns, and rounds differently.
    first = first.lerp(gradient, 1 - BETA1)
    second = second.lerp(gradient.square(), 1 - beta2)
    move = (first / (1 - BETA1**steps)) / ((second / (1 - beta2**steps)).sqrt() + EPS)
    return move, first, second


def stack_padded(vectors: Sequence[Tensor]) -> Tensor:
    """Vectors of different length as the rows of one tensor, zeros on the right."""
    longest = max(len(vector) for vector in vectors)
    return torch.stack([pad(vector, (0, longest - len(vector))) for vector in vectors])


def decorrelated_part(config: HeteFedRecConfig, table: Tensor, seed: int, round: int) -> Tensor:
    """The rows and columns of a table [..., m, N] that are decorrelated."""
    table = table[..., config.sizes[0] :] if config.ddr_columns == "outer" else table
    if config.ddr_rows == 1:
        return table
    return table[..., distillation.draw_items(table.shape[-2], config.ddr_rows, seed, round, table.device, stream=1), :]


class LocalWork:
    """What a client of a size computes from its samples; its user vector moves at once."""

    def __init__(self, config: HeteFedRecConfig, roles: Roles, model: NestedModel) -> None:
        """Read HeteFedRec's settings."""
        self.config, self.roles, self.model = config, roles, model

    def run(
        self,
        task: Task,
        clients: ClientState,
        params: Params,
        names: Sequence[str],
        samples: Samples,
        size: int,
        round: int,
    ) -> tuple[Params, Tensor]:
        """Changes of the ``names`` but the user vector, and each client's loss."""
        if self.config.local == "epochs":
            return self._epochs(clients, params, names, samples, size, round)
        recorded = graphs.kept(task, self.model, size, *names)
        gradients, loss = full_gradient(self.model, params, names, size, samples, recorded)
        self._user_step(clients, gradients.pop("user"))
        # The change is minus the gradient; who adds it up chooses the step.
        return {name: -gradient for name, gradient in gradients.items()}, loss

    def _user_step(self, clients: ClientState, gradient: Tensor) -> None:
        move = gradient
        if self.config.user_optimizer == "adam":
            clients["steps"] = clients["steps"] + 1
            move, first, second = adam(gradient, clients["first"], clients["second"], clients["steps"], BETA2)
            clients["first"], clients["second"] = first, second
        clients["user"] = clients["user"] - (self.config.lr_user or self.config.lr) * move

    def _epochs(
        self, clients: ClientState, params: Params, names: Sequence[str], samples: Samples, size: int, round: int
    ) -> tuple[Params, Tensor]:
        c, whole = self.config, self.roles.whole_table[size]
        work = params | {name: params[name].clone() for name in names}

        def loss(local: Params, batch: Batch) -> Tensor:
            value = self.model.loss(local, size, batch.items if whole else batch.slots, batch.bce)
            if whole:
                part = decorrelated_part(c, local["block"], samples.seed, round)
                value = value + c.alpha * decorrelation.penalty(part)
            return value

        rates = dict.fromkeys(names, c.lr_theta or c.lr) | {"user": c.lr_user or c.lr, "block": c.lr}
        steps = [Step(tuple(names), rates, c.optimizer)]
        value = fit(work, loss, replace(samples, round=round), Schedule(c.epochs, c.batch_size), steps)
        clients["user"] = work["user"]
        return {name: work[name] - params[name] for name in names if name != "user"}, value
