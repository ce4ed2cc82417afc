"""Local work of a client with a nested model: one full-batch gradient, or epochs; and its own merged table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad, softplus

from fedrec.federation.local import BETA1, EPS, Batch, Params, Step, fit, take_rows
from fedrec.federation.method import Task
from fedrec.federation.payload import State
from fedrec.federation.store import ClientState
from fedrec.parts import merging
from fedrec.parts.hetero_models import NestedModel, predictor_size
from fedrec.sampling import streams
from fedrec.sampling.samples import Samples


def row_bce(samples: Samples) -> Callable[[Tensor], Tensor]:
    """Each client's mean binary cross-entropy from logits of its rows [c, R]; equal samples share a row."""
    slots = samples.slots.long()
    valid = torch.arange(slots.shape[1], device=slots.device) < samples.counts[:, None]
    one = valid / samples.counts.clamp(min=1)[:, None]
    zeros = torch.zeros(samples.rows.shape, device=slots.device)
    positive = zeros.scatter_add(1, slots, one * samples.labels)
    negative = zeros.scatter_add(1, slots, one * (1 - samples.labels))
    return lambda logits: (positive * softplus(-logits) + negative * softplus(logits)).sum(1)


def full_gradient(
    model: NestedModel, params: Params, names: Sequence[str], size: int, samples: Samples
) -> tuple[Params, Tensor]:
    """Gradients by the named parameters of each client's loss on all its samples, and the losses [c]."""
    leaves = params | {name: params[name].detach().clone().requires_grad_() for name in names}
    loss = model.loss(leaves, size, None, row_bce(samples))
    found = torch.autograd.grad(loss.sum(), [leaves[name] for name in names])
    return dict(zip(names, found, strict=True)), loss.detach()


def adam(gradient: Tensor, first: Tensor, second: Tensor, steps: Tensor, beta2: float) -> tuple[Tensor, Tensor, Tensor]:
    """Adam's move for a gradient, and the new moments."""
    first = first.lerp(gradient, 1 - BETA1)
    second = second.lerp(gradient.square(), 1 - beta2)
    move = (first / (1 - BETA1**steps)) / ((second / (1 - beta2**steps)).sqrt() + EPS)
    return move, first, second


def stack_padded(vectors: Sequence[Tensor]) -> Tensor:
    """Vectors of different length as the rows of one tensor, zeros on the right."""
    longest = max(len(vector) for vector in vectors)
    return torch.stack([pad(vector, (0, longest - len(vector))) for vector in vectors])


def widened(values: Tensor, like: Tensor) -> Tensor:
    """``values`` with zeros on the right of its last axis, as wide as ``like``."""
    return pad(values, (0, like.shape[-1] - values.shape[-1]))


def positive_items(samples: Samples, n_items: int) -> Tensor:
    """[c, m]: the items a client has a training positive of."""
    found = torch.zeros(len(samples.items), n_items, device=samples.labels.device)
    return found.scatter_add_(1, samples.items.long(), samples.labels) > 0


class OwnTables:
    """Merging for clients of different size: each keeps a table of its own size and an adapter for its columns."""

    def __init__(self, config: Any, model: NestedModel, places: Sequence[int]) -> None:
        """``places`` is the size each group trains."""
        self.config, self.model, self.places = config, model, places
        self.used = config.merge != "replace"

    def widths(self, size: int) -> tuple[int, ...]:
        """Layers of the adapter of a size."""
        return merging.adapter_widths(self.config.sizes[size], self.config.adapter_hidden)

    def state(self, task: Task, group: Tensor) -> State:
        """Empty tables, filled at the first download, and the initial adapter of each size; padded to the widest."""
        if not self.used:
            return {}
        n, widest = len(group), self.config.sizes[max(self.places)]
        state = {
            "local": torch.zeros(1, task.n_items, widest, device=task.device).expand(n, -1, -1),
            "started": torch.zeros(n, dtype=torch.bool, device=task.device),
        }
        if self.config.merge == "elastic":
            keys = streams.child(streams.keys(task.seed, streams.Purpose.INIT, 0, torch.zeros(1, dtype=torch.int64)), 1)
            adapters = [merging.init_adapters(self.widths(place), keys)[0] for place in self.places]
            state["adapter"] = stack_padded(adapters).to(task.device)[group]
        return state

    def merged(
        self,
        clients: ClientState,
        server: Tensor,
        size: int,
        params: Params | None = None,
        samples: Samples | None = None,
    ) -> Tensor:
        """The download as it is, or merged with the own table; with ``samples`` the adapter is trained first."""
        c, widths, theta = self.config, self.widths(size), None
        if not self.used:
            return server
        local = torch.where(clients["started"][:, None, None], clients["local"][..., : server.shape[2]], server)
        if c.merge == "elastic":
            theta = clients["adapter"][:, : predictor_size(widths)].clone()
            if params is not None and samples is not None:
                self._fit(theta, params, local, server, samples, size)
                clients["adapter"] = widened(theta, clients["adapter"])
        return merging.merge(c.merge, local, server, theta=theta, widths=widths, rho=c.rho)

    def _fit(self, theta: Tensor, params: Params, own: Tensor, server: Tensor, samples: Samples, size: int) -> None:
        """Train the adapters alone, through the client's own loss on merged rows (Eq. 11 of FedEM)."""
        c, widths = self.config, self.widths(size)

        def loss(params: Params, batch: Batch) -> Tensor:
            block = merging.merged_rows(params, widths, params["local"], params["server"])
            return self.model.loss(params | {"block": block}, size, batch.slots, batch.bce)

        work = params | {"adapter": theta, "local": take_rows(own, samples), "server": take_rows(server, samples)}
        # A single gradient per visit sees all samples at once; so does the adapter then.
        batch = c.batch_size if c.local == "epochs" else max(1, samples.items.shape[1])
        fit(work, loss, samples, epochs=c.adapter_epochs, batch_size=batch, steps=[Step(("adapter",), c.adapter_lr)])

    def keep(self, clients: ClientState, table: Tensor) -> None:
        """Remember the table after training."""
        if self.used:
            clients["local"] = widened(table, clients["local"])
            clients["started"] = torch.ones_like(clients["started"])
