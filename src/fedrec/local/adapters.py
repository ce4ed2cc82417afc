"""Merging adapters: a client's weight rho for every row, between the item table it has and the one it downloads.

An adapter is a small perceptron that reads a row as ``concat(local, server - local)``; the paper (see
``fedrec.parts.merging``) puts the halves the other way round, which only permutes the columns of the first layer's
weights. The merged row is ``local + rho * (server - local)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedrec.compute import dispatch
from fedrec.errors import ConfigError
from fedrec.local import twins
from fedrec.local.fit import Batch, Params, Schedule, Step, lookup
from fedrec.local.mlp import FlatMLP
from fedrec.local.problem import LocalProblem
from fedrec.sampling.samples import Samples

CHUNK_ROWS = 1 << 20  # rows whose units are held at once: some 400 MB for the usual widths


def adapter_widths(dim: int, hidden: Sequence[int] = (16, 8)) -> tuple[int, ...]:
    """Layer widths of the adapter for item tables of ``dim`` columns."""
    return (2 * dim, *hidden, 1)


def check_widths(widths: Sequence[int], dim: int) -> None:
    """Refuse layer widths that do not fit tables of ``dim`` columns."""
    if len(widths) < 2 or min(widths) < 1 or widths[0] != 2 * dim or widths[-1] != 1:
        raise ConfigError(
            f"adapter widths {list(widths)} do not fit tables of dimension {dim}; "
            f"start at {2 * dim}, end in 1 and use positive widths, like {list(adapter_widths(dim))}."
        )


@dataclass(frozen=True)
class MergingAdapter(LocalProblem):
    """Mean binary cross-entropy of ``user`` [c, d] times merged rows: Eq. 11 of FedEM.

    Parameters are ``adapter`` [c, P], ``user``, and the touched rows ``local`` and ``server`` [c, R, d]. With
    ``pool_local`` and ``pool_server`` [c, N, d] a client's rows share one weight: the adapter's mean over the pool.
    """

    widths: tuple[int, ...]

    @property
    def network(self) -> FlatMLP:
        """The adapter's layers."""
        return FlatMLP(self.widths)

    def loss(self, params: Params, batch: Batch) -> Tensor:
        """Each client's mean binary cross-entropy."""
        local, server = lookup(params["local"], batch.slots), lookup(params["server"], batch.slots)
        rows = self.merged_rows(params, local, server)
        return batch.bce((rows @ params["user"].unsqueeze(2)).squeeze(2))

    def merged_rows(self, params: Params, local: Tensor, server: Tensor) -> Tensor:
        """Rows [c, R, d] merged with the parameters adapter and, if they are there, pool_local and pool_server."""
        if "pool_local" in params:
            pool = params["pool_local"], params["pool_server"]
            rho = self.weights(params["adapter"], *pool).mean(1, keepdim=True)
        else:
            rho = self.weights(params["adapter"], local, server)
        return local + rho[:, :, None] * (server - local)

    def weights(self, theta: Tensor, local: Tensor, server: Tensor) -> Tensor:
        """Weights rho [c, R] of rows ``local`` [c, R, d] against ``server`` (so, or [R, d]), differentiable."""
        return self.network(theta, torch.cat([local, server - local], dim=2)).squeeze(2).sigmoid()

    def table_weights(self, theta: Tensor, local: Tensor, server: Tensor) -> Tensor:
        """``weights`` for whole tables: compiled where possible, no gradients, bounded memory between the layers."""
        kind = dispatch.compiled_for(theta, local, server)
        if kind is not None and self.compiles(kind):
            if server.dim() == 3 and len(server) and server.stride(0) == 0:  # one table behind all clients
                server = server[0]
            rho: Tensor = twins.load(twins.ROW_WEIGHTS[kind])(
                self, *(tensor.detach().contiguous() for tensor in (theta, local, server))
            )
            return rho
        clients, rows = max(1, CHUNK_ROWS // max(1, local.shape[1])), CHUNK_ROWS
        rho = local.new_empty(local.shape[:2])
        with torch.no_grad():
            for c in range(0, local.shape[0], clients):
                for r in range(0, local.shape[1], rows):
                    here = (slice(c, c + clients), slice(r, r + rows))
                    theirs = server[here] if server.dim() == 3 else server[here[1]]
                    rho[here] = self.weights(theta[here[0]], local[here], theirs)
        return rho

    def train(self, params: Params, samples: Samples, schedule: Schedule, steps: Sequence[Step]) -> Tensor:
        """As every problem, once the widths are known to fit the rows."""
        self.check(params)
        return super().train(params, samples, schedule, steps)

    def check(self, params: Params) -> None:
        """Refuse rows that the widths do not fit."""
        check_widths(self.widths, params["local"].shape[2])

    def suits(self, kind: dispatch.Kind, params: Params, steps: Sequence[Step]) -> bool:
        """Twins take Adam's step on the adapter alone, or that and one on user and local rows."""
        moved = (("adapter",), ("user", "local"))
        usual = 1 <= len(steps) <= 2 and all(
            step.optimizer == "adam" and step.is_plain(*names) for step, names in zip(steps, moved, strict=False)
        )
        pooled = "pool_local" in params
        return usual and self.compiles(kind) and not (pooled and (kind == "gpu" or len(steps) == 2))

    def compiles(self, kind: dispatch.Kind) -> bool:
        """Whether compiled code can hold these layers: on a GPU two hidden ones of few units."""
        return kind == "cpu" or (len(self.widths) == 4 and self.widths[0] <= 128 and max(self.widths[1:]) <= 32)
