"""How clients merge, for every method that does: settings, adapters and their training, and an own table to merge with.

Chen, Zhang, Zhang, Luo, Li, "Breaking the Aggregation Bottleneck in Federated Recommendation: A Personalized
Model Merging Approach", AAAI 2026, Eq. 9-11.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import pad

from fedrec.federation.config import MethodConfig, Width
from fedrec.federation.mixture import Mixture
from fedrec.federation.payload import State
from fedrec.federation.store import ClientState
from fedrec.federation.task import Task
from fedrec.local.adapters import MergingAdapter, adapter_widths
from fedrec.local.factorisation import MatrixFactorisation
from fedrec.local.fit import Batch, Loss, Params, Schedule, Step
from fedrec.local.merged import MergedSamples
from fedrec.local.problem import LocalProblem
from fedrec.parts.merging import Mode, Pool, adapter_weights, merge, pool_rows
from fedrec.sampling import streams
from fedrec.sampling.samples import Samples

OWN, STARTED, ADAPTER = "own_table", "own_table_started", "adapter"


class MergeSettings(MethodConfig):
    """How a client merges the item table it downloads with the one it has."""

    merge: Mode = "elastic"
    """replace (SR), static (SM), dynamic (DM), elastic (EM), or none (clients keep their own table)."""
    rho: float = Field(0.5, ge=0, le=1)
    """Weight of the downloaded table under static merging."""
    dynamic_pool: Pool = "items"
    """Dynamic merging: mean of the adapter over all items, or the adapter of the mean row."""
    adapter_hidden: tuple[Width, ...] = (16, 8)
    """Hidden layers of the adapter."""
    adapter_lr: float = Field(0.1, gt=0)
    """Learning rate of the adapter (beta)."""
    adapter_epochs: int = Field(10, ge=1)
    """Epochs of the adapter phase."""


@dataclass(frozen=True)
class Merger:
    """Merging of tables of ``dim`` columns."""

    settings: MergeSettings
    dim: int

    @property
    def adapts(self) -> bool:
        """Whether clients have adapters at all."""
        return self.settings.merge in ("dynamic", "elastic")

    @property
    def adapter(self) -> MergingAdapter:
        """The local problem that trains an adapter, and its network."""
        return MergingAdapter(adapter_widths(self.dim, self.settings.adapter_hidden))

    def draw(self, task: Task, *, stream: int, clients: Tensor | None = None) -> Tensor:
        """Initial adapters U(+-1/sqrt(fan in)) of these clients, [c, P], or one for all, [1, P]."""
        who = torch.zeros(1, dtype=torch.int64) if clients is None else clients.cpu()
        keys = streams.child(streams.keys(task.seed, streams.Purpose.INIT, 0, who), stream)
        return self.adapter.network.draw_each(keys).to(task.device)

    def adapt(
        self,
        theta: Tensor,
        params: Params,
        rows: tuple[Tensor, Tensor],
        samples: Samples,
        schedule: Schedule,
        lr: float,
        *,
        tables: Callable[[], tuple[Tensor, Tensor]],
        through: LocalProblem | None = None,
    ) -> None:
        """The adapter phase (Eq. 11): train ``theta`` in place, and nothing else, through merged rows.

        ``rows`` are the touched local and server rows [c, R, d], ``tables`` gives the whole tables, which dynamic merging
        looks at. The loss is that of ``user . row`` from ``params``, unless the problem is another one.
        """
        work = params | {"adapter": theta, "local": rows[0], "server": rows[1]}
        if self.settings.merge == "dynamic":
            work["pool_local"], work["pool_server"] = pool_rows(self.settings.dynamic_pool, *tables())
        (through or self.adapter).train(work, samples, schedule, [Step(("adapter",), lr)])

    def train_through(
        self,
        theta: Tensor,
        server: Tensor,
        problem: LocalProblem,
        params: Params,
        samples: Samples,
        schedule: Schedule,
        steps: Sequence[Step],
        *,
        first: Step | None,
        through: bool,
        row_names: Sequence[str] = (),
    ) -> Tensor:
        """Train ``params`` with ``block``, the own rows, merged with the ``server``'s rows before the problem sees them.

        ``first`` is a step on the adapter ``theta`` that comes before the others in every batch. Without ``through`` only
        it looks at merged rows.
        """
        work = {name: value for name, value in params.items() if name != "block"}
        work |= {"adapter": theta, "local": params["block"], "server": server}
        plain: Loss | None = None if through else _OnLocal(problem).loss
        moved = [_renamed(step, plain) for step in steps]
        looked = look_through(self.adapter, problem, row_names)
        return looked.train(work, samples, schedule, [first, *moved] if first else moved)

    def update(
        self, private: ClientState, server: Tensor, adapt: Callable[[Tensor, Tensor], None] | None = None
    ) -> Tensor:
        """The own table merged with the download; before that ``adapt`` trains the adapters, given them and the own table."""
        local, theta = own_table(private, server), None
        if self.adapts:
            theta = private[ADAPTER][:, : self.adapter.network.size].clone()
            if adapt is not None:
                adapt(theta, local)
                private[ADAPTER] = widened(theta, private[ADAPTER])
        return self.merged(local, server, theta)

    def merged(self, local: Tensor, server: Tensor, theta: Tensor | None) -> Tensor:
        """The table a client goes on with (Eq. 9-10)."""
        s = self.settings
        widths = self.adapter.widths
        return merge(s.merge, local, server, theta=theta, widths=widths, rho=s.rho, pool=s.dynamic_pool)

    def mixture(self, local: Tensor, server: Tensor, theta: Tensor | None) -> Mixture:
        """What ``merged`` mixes: both tables, and the share of the download in every row."""
        s, server = self.settings, server.expand_as(local)
        known = {"none": 0.0, "replace": 1.0, "static": s.rho}
        if s.merge in known:
            share = local.new_full(local.shape[:2], known[s.merge])
        else:
            share = adapter_weights(s.merge, local, server, theta, self.adapter.widths, s.dynamic_pool)
        return Mixture(local, server, share.expand(local.shape[:2]))

    def kept_mixture(self, private: ClientState, server: Tensor) -> Mixture:
        """``mixture`` of the own tables that clients keep; where there is none yet, all is of the download."""
        theta = private[ADAPTER][:, : self.adapter.network.size] if self.adapts else None
        found = self.mixture(own_table(private, server), server, theta)
        return replace(found, share=found.share.where(private[STARTED][:, None], 1.0))


def look_through(adapter: MergingAdapter, problem: LocalProblem, row_names: Sequence[str] = ()) -> LocalProblem:
    """A problem on merged rows; the one of ``user . row`` is the adapter's own, which is compiled."""
    return adapter if type(problem) is MatrixFactorisation else MergedSamples(adapter, problem, row_names)


def _renamed(step: Step, loss: Loss | None) -> Step:
    """A step on the block as one on the own rows."""
    rates = {"local" if name == "block" else name: rate for name, rate in step.rates.items()}
    return replace(step, names=tuple(rates), lr=rates, loss=loss)


@dataclass(frozen=True)
class _OnLocal:
    """A problem's loss on the own rows as they are."""

    problem: LocalProblem

    def loss(self, params: Params, batch: Batch) -> Tensor:
        return self.problem.loss(params | {"block": params["local"]}, batch)


@dataclass(frozen=True)
class MergedBlock(LocalProblem):
    """A method's own loss on the merged block of touched rows, for models that look at the block as a whole."""

    adapter: MergingAdapter
    problem: LocalProblem

    def loss(self, params: Params, batch: Batch) -> Tensor:
        """Each client's mean loss."""
        block = self.adapter.merged_rows(params, params["local"], params["server"])
        return self.problem.loss(params | {"block": block}, batch)


def empty_table(task: Task, clients: int, columns: int) -> State:
    """An own table of each client, which the first download fills."""
    return {
        OWN: torch.zeros(1, task.n_items, columns, device=task.device).expand(clients, -1, -1),
        STARTED: torch.zeros(clients, dtype=torch.bool, device=task.device),
    }


def own_table(private: ClientState, server: Tensor) -> Tensor:
    """The client's own table, as wide as the download, or at first the download itself. Do not change it."""
    started = private[STARTED]
    if bool(started.all()):  # the usual case needs no copy
        return private[OWN][..., : server.shape[2]]
    return torch.where(started[:, None, None], private[OWN][..., : server.shape[2]], server)


def widened(values: Tensor, like: Tensor) -> Tensor:
    """``values`` with zeros on the right of its last axis, as wide as ``like``."""
    missing = like.shape[-1] - values.shape[-1]
    return pad(values, (0, missing)) if missing else values


def keep_table(private: ClientState, table: Tensor) -> None:
    """Remember a table after training; columns beyond its own are 0."""
    private[OWN] = widened(table, private[OWN])
    private[STARTED] = torch.ones_like(private[STARTED])
