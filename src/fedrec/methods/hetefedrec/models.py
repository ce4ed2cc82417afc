"""Base models of clients of any size: NCF's predictor, LightGCN on a client's own star graph, and a dot product.

Predictors are perceptrons with flat parameters ``theta`` [c, P], see ``fedrec.local.mlp``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

import torch
from torch import Tensor

from fedrec.local.fit import Params, lookup
from fedrec.local.mlp import FlatMLP
from fedrec.methods.hetefedrec.config import HeteFedRecConfig
from fedrec.parts.scorers import shared


def predict(user: Tensor, rows: Tensor, theta: Tensor, network: FlatMLP) -> Tensor:
    """Logits [c, R] of each client's ``rows`` [c, R, N] for its ``user`` [c, N]; a dot product without layers."""
    if not network.widths:
        # The empty predictor takes part, so that it has a gradient (of no numbers) like any other.
        return (rows @ user.unsqueeze(2)).squeeze(2) + theta.sum(1, keepdim=True)
    return network.paired(theta, user, rows).squeeze(2)


def predict_shared(user: Tensor, table: Tensor, theta: Tensor, network: FlatMLP) -> Tensor:
    """``predict`` where all clients share ``table`` [m, N] and ``theta`` [P]: the items' half is computed once."""
    if not network.widths:
        return user @ table.T
    (weight, bias), *rest = [(w[0], b[0]) for w, b in network.layers(theta[None])]
    n = user.shape[1]
    units = torch.addmm(bias, user, weight[:, :n].T)[:, None] + table @ weight[:, n:].T
    for weight, bias in rest:
        units = torch.addmm(bias, units.relu_().flatten(0, 1), weight.T).view(*units.shape[:2], -1)
    return units.squeeze(2)


def propagate(
    user: Tensor, rows: Tensor, positive: Tensor, depth: int, *, user_only: bool = False
) -> tuple[Tensor, Tensor]:
    """LightGCN of ``depth`` layers on each client's star graph, in closed form: the mean of layers 0..depth.

    ``positive`` [c, R] is 1 for the rows the client is linked to. With n of them, odd layers are
    u = sum v / sqrt(n), v_j = u / sqrt(n); even ones from the second on u, v_j = sum v / n; other rows get nothing.
    """
    odd, even = (depth + 1) // 2, depth // 2
    n = positive.sum(1, keepdim=True).clamp(min=1)
    total = (positive.unsqueeze(1) @ rows).squeeze(1)
    mean_user = ((1 + even) * user + odd * total / n.sqrt()) / (depth + 1)
    if user_only:
        return mean_user, rows
    gain = odd * user / n.sqrt() + even * total / n
    return mean_user, (rows + positive.unsqueeze(2) * gain.unsqueeze(1)) / (depth + 1)


class NestedModel:
    """The models of all sizes: what a client of one size trains, and how it scores."""

    def __init__(self, config: HeteFedRecConfig, *, dual: bool) -> None:
        """Read HeteFedRec's settings; with ``dual`` a client trains every smaller model inside its own, too."""
        self.config, self.dual = config, dual

    def predictor(self, size: int) -> FlatMLP:
        """The predictor of a size, 16 N + 89 parameters for its layers 2N-8-8-1; no layers for a dot product."""
        c = self.config
        if c.base == "mf":
            return FlatMLP(())
        factor = c.sizes[size] / c.sizes[0] if c.growing else 1
        return FlatMLP((2 * c.sizes[size], *(round(width * factor) for width in c.hidden), 1))

    def n_theta(self, size: int) -> int:
        """Parameters of the predictor of a size."""
        return self.predictor(size).size

    def tasks(self, size: int) -> Sequence[int]:
        """The sizes a client of this size trains."""
        return range(size + 1) if self.dual else (size,)

    def user_columns(self, size: int) -> dict[int, slice]:
        """Where the user vector of each task lies in the private one."""
        sizes = self.config.sizes
        if not self.config.separate_users:
            return {task: slice(0, sizes[task]) for task in self.tasks(size)}
        ends = accumulate(sizes[task] for task in self.tasks(size))
        return {task: slice(end - sizes[task], end) for task, end in zip(self.tasks(size), ends, strict=True)}

    def loss(self, params: Params, size: int, slots: Tensor | None, bce: Callable[[Tensor], Tensor]) -> Tensor:
        """The loss of every task, of all rows of the block or those at ``slots``."""
        terms = []
        for task, columns in self.user_columns(size).items():
            user, rows = params["user"][:, columns], params["block"][..., : self.config.sizes[task]]
            user, rows = self.propagated(user, rows, params.get("positive"))
            rows = rows if slots is None else lookup(rows, slots)
            terms.append(bce(predict(user, rows, params[f"theta{task}"], self.predictor(task))))
        total = torch.stack(terms).sum(0)
        return total / len(terms) if self.config.udl_weights == "mean" else total

    def propagated(self, user: Tensor, rows: Tensor, positive: Tensor | None) -> tuple[Tensor, Tensor]:
        """What the predictor sees: for LightGCN the embeddings after message passing."""
        c = self.config
        if c.base != "lightgcn" or positive is None:
            return user, rows
        return propagate(user, rows, positive, c.layers, user_only=c.propagate == "user_only")

    def score(self, size: int, user: Tensor, table: Tensor, theta: Tensor, positive: Tensor | None) -> Tensor:
        """Logits [c, m] of whole tables [c, m, N], with the model of the client's full size."""
        user = user[:, self.user_columns(size)[size]]
        one = shared(table)
        if one is not None and self.config.base != "lightgcn":
            return predict_shared(user, one, theta[0], self.predictor(size))
        return predict(*self.propagated(user, table, positive), theta, self.predictor(size))
