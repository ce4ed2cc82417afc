"""FedGram (ours): EASE as a federation of one round, exact, needing nothing but a sum over clients.

X'X is the sum of x_u x_u' over clients, so one secure sum of m(m+1)/2 integers gives the server exactly what centralised
EASE (Steck, WWW 2019) needs. The server solves for the item-item weights B and publishes them; a client scores x_u B on
its device. A client that takes part again uploads the change of its x_u x_u' since the last time, so the server stays
exact when histories grow, shrink or vanish. The upload of a cohort is its sum, one row for all its clients: a server
behind secure aggregation sees nothing else, and no n x m x m array ever exists.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn.functional import embedding_bag

from fedrec.data.training import TrainingView
from fedrec.federation.search import Range, Space
from fedrec.method import (
    ClientState,
    Ledger,
    MethodConfig,
    PartialConfig,
    Payload,
    Samples,
    State,
    SumMethod,
    Task,
    Total,
    Upload,
    broadcast,
    tensor,
)
from fedrec.parts.gaussian import noise_multiplier, report
from fedrec.parts.gram import SOLVING, check_square, ease_dtype, ease_rows, gram_rows, row_scale
from fedrec.parts.published import NAMES, WeightsConfig, no_weights, published, weighted_parts, weighted_scores
from fedrec.parts.recent import appended, own_history, recency
from fedrec.parts.symmetric import pack, positive_part, top_eigenpairs, unpack
from fedrec.sampling import streams

COUNTS = "working.gram"
SUMS = 8
"""Bytes for every pair of items: triangles of what clients sent, of their sum, of that with noise, and of all rounds."""


class FedGramConfig(WeightsConfig, PartialConfig):
    """Settings of FedGram."""

    space: ClassVar[Space] = {
        "lam": Range(1.0, 20_000.0, log=True),
        "delta_q": Range(1.0, 1000.0, log=True),
    }

    lam: float = Field(500.0, gt=0)
    """L2 penalty lambda of EASE."""
    normalise: bool = False
    """Every client scales its row to length 1, so that heavy clients do not dominate."""
    top_items: int | None = Field(None, ge=1)
    """Model the most popular items only; a first round counts items. The others rank below, by popularity."""
    rank: int | None = Field(None, ge=1)
    """Publish so many eigenpairs of the sum instead of B: m x rank numbers to download."""
    delta_q: float | None = Field(None, gt=0)
    """How fast the history fades that a client scores with, in items; none: not at all, as in data without time."""
    epsilon: float | None = Field(None, gt=0)
    """Privacy budget of a client; Gaussian noise on the sum is calibrated to it. None: no noise."""
    delta: float = Field(1e-5, gt=0, lt=1)
    """Failure probability at which epsilon holds."""
    n_max: int | None = Field(None, ge=1)
    """Items a client contributes at most, chosen at random; it still scores with its whole history."""
    participation: float = Field(1.0, gt=0, le=1)
    """Share of clients that take part in a round; the sum grows over rounds."""

    @property
    def uses_order(self) -> bool:
        """Where the history fades."""
        return self.delta_q is not None

    @model_validator(mode="after")
    def _bounded(self) -> FedGramConfig:
        if self.epsilon is not None and self.n_max is None:
            raise ValueError("epsilon needs a bound on what one client contributes; set n_max, for example 50")
        if self.rank is not None and self.keep is not None:
            raise ValueError("rank and keep are two ways to publish less; set one of them")
        return self


class FedGram(SumMethod):
    """One secure sum of item-item counts, a closed form, private scoring."""

    name = "fedgram"
    title = "EASE in one federated round: a secure sum of item-item counts (ours)"
    paper = "ours, after Steck 2019"
    private = "the client's own history (m bits)"
    uploaded = "its item-item counts, for a sum over clients only"
    server_keeps = "item-item counts of all clients together, and the weights"
    Config = FedGramConfig
    config: FedGramConfig
    rounds = 1
    logits = False
    folds_in = explains = True

    def __init__(self, config: MethodConfig | None = None, **options: Any) -> None:
        """One round, or two where items must be counted first."""
        super().__init__(config, **options)
        self.rounds = 1 if self.config.top_items is None else 2

    def privacy_problem(self) -> str:
        """Noise belongs on the sum, not on each upload."""
        return "its noise goes on the sum over clients; set epsilon and n_max instead"

    def central_problem(self) -> str | None:
        """A client's counts must be bounded, and noised once."""
        if self.config.epsilon is not None:
            return "its setting epsilon is noise on the same sum; drop one of them"
        if self.config.n_max is None:
            return "nothing bounds what one client contributes; set n_max, for example 50"
        return None

    def sum_bounds(self) -> dict[str, float]:
        """Of at most ``n_max`` items."""
        return {kind: self._sensitivity(kind) for kind in ("counts", "gram")}

    def server_state(self, task: Task) -> State:
        """Zero counts and weights, for all items or, before they are chosen, for none."""
        top, device = self.config.top_items, task.device
        modelled = min(task.n_items, top or task.n_items)
        check_square(
            self.name,
            modelled,
            device,
            self.config.memory_gb,
            "set top_items or raise memory_gb",
            per_entry=SUMS + SOLVING + (4 if self.config.keep is None else 0),
        )
        items = torch.arange(task.n_items if top is None else 0, device=device)
        state = {"items": items}
        if top is not None:
            state["popularity"] = torch.zeros(task.n_items, device=device)
        return state | self._nothing(len(items), device)

    def client_state(self, task: Task, clients: Tensor) -> State:
        """An empty history: what the client last contributed, and what it scores with."""
        return {"history": torch.zeros(len(clients), task.n_items, dtype=torch.bool, device=task.device)}

    def own_data(self, view: TrainingView, clients: Tensor) -> State:
        """The order of the history, where it counts."""
        if self.config.delta_q is None or view.history is None:
            return {}
        return {"recent": own_history(view, clients)["history"]}

    def broadcast(self, task: Task, server: State, clients: Tensor) -> Payload:
        """The weights, and which items they are for."""
        names: list[str] = [name for name in (*NAMES, "vectors", "base") if name in server]
        if self.config.top_items is not None:
            names += ["items", "popularity"]
        return {name: broadcast(server[name], len(clients)) for name in names}

    def train(
        self, task: Task, private: ClientState, payload: Payload, samples: Samples, round: int
    ) -> tuple[Payload, Tensor]:
        """The sum over these clients of what each adds: item counts first where needed, else item-item counts."""
        before, lossless = private["history"], torch.zeros(len(private))
        now = torch.zeros_like(before)
        real = samples.valid_rows
        now[real.nonzero()[:, 0], samples.rows[real].long()] = True
        items = tensor(payload, "items")[0] if "items" in payload else None
        if items is not None and not len(items):
            _, counted, _ = self._contribution(now, samples)
            return {"counts": torch.bincount(counted, minlength=now.shape[1])[None].int()}, lossless
        change = self._packed(now, items, samples)
        if bool(before.any()):
            change -= self._packed(before, items, samples)
        private["history"] = now
        return {"gram": (change if self.config.normalise else change.int())[None]}, lossless

    def _packed(self, history: Tensor, items: Tensor | None, samples: Samples) -> Tensor:
        """Upper triangle of the sum of x x' over these clients."""
        modelled = history if items is None else history[:, items]
        owners, columns, values = self._contribution(modelled, samples)
        return pack(gram_rows(owners, columns, modelled.shape[1], values if self.config.normalise else None))

    def _contribution(self, history: Tensor, samples: Samples) -> tuple[Tensor, Tensor, Tensor]:
        """Client, item and value of what counts of every history: at most ``n_max`` items of each."""
        owners, items = history.nonzero(as_tuple=True)
        counts = history.sum(1)
        if (most := self.config.n_max) is not None:
            keys = streams.keys(samples.seed, streams.Purpose.OTHER, 0, samples.clients.to(history.device))
            order = torch.argsort(owners + streams.uniform(keys[owners], items))  # random inside each client
            position = torch.arange(len(owners), device=owners.device) - (counts.cumsum(0) - counts)[owners]
            items = items[order][position < most]
            owners, counts = owners[position < most], counts.clamp(max=most)
        return owners, items, row_scale(counts)[owners]

    @property
    def adds_noise(self) -> bool:
        """Where noise is asked for."""
        return self.config.epsilon is not None

    def contribute(self, task: Task, upload: Upload, total: Total) -> None:
        """Counts of items or of pairs of items."""
        for kind in upload.parts:
            total.add(kind, tensor(upload.parts, kind).sum(0))

    def step(self, task: Task, server: State, total: Total, round: int) -> State:
        """Add noise if asked, and choose the items or solve."""
        if not total:
            return server
        ((kind, counts),) = total.items()
        noisy = self._noised(task, counts.float(), kind, round)
        if kind == "counts":
            chosen = torch.sort(noisy, descending=True, stable=True).indices[: self.config.top_items]
            fresh = {"items": chosen.sort().values, "popularity": noisy.clamp(min=0)}
            return server | fresh | self._nothing(len(chosen), noisy.device)
        counts = server[COUNTS] + noisy
        return (
            server
            | {COUNTS: counts}
            | self._solved(counts, len(server["items"]), noisy=task.noised or self.config.epsilon is not None)
        )

    def _nothing(self, n: int, device: torch.device) -> State:
        """No counts of pairs among ``n`` items, and no weights."""
        counts = {COUNTS: torch.zeros(n * (n + 1) // 2, device=device)}
        if self.config.rank is None:
            return counts | no_weights(self.config, n, device)
        vectors = torch.zeros(n, min(n, self.config.rank), device=device)
        return counts | {"vectors": vectors, "base": torch.ones(1, device=device)}

    def _solved(self, packed: Tensor, n: int, *, noisy: bool) -> State:
        """What is published: B, or the top eigenpairs."""
        rank, lam = self.config.rank, self.config.lam
        counts = unpack(packed, n)
        if noisy:
            counts = positive_part(counts)
        if rank is None:
            counts = counts.to(ease_dtype(counts, lam))
            return published(self.config, ease_rows(counts, lam), n, counts.device)
        # P is about I / rest - V diag(w) V': eigenvalues that are not sent are replaced by their mean.
        values, vectors = top_eigenpairs(counts, rank)
        rest = lam + float((counts.trace() - values.sum()).clamp(min=0)) / max(1, n - len(values))
        gains = (1 / rest - 1 / (values + lam)).clamp(min=0)
        return {"vectors": vectors * gains.sqrt(), "base": counts.new_tensor([1 / rest])}

    def fold_in(self, task: Task, private: ClientState, later: Tensor) -> State:
        """The history goes on."""
        history, real = private["history"].clone(), later >= 0
        history[real.nonzero()[:, 0], later[real].long()] = True
        recent = {"recent": appended(private["recent"], later)} if "recent" in private else {}
        return {"history": history} | recent

    def scores(self, task: Task, private: ClientState, payload: Payload) -> Tensor:
        """x_u B with the own history."""
        history = private["history"]
        if "recent" in private:
            recent = private["recent"]
            faded, real = recency(recent, self.config.delta_q), recent >= 0
            owners = real.nonzero()[:, 0]
            history = history.new_zeros(history.shape, dtype=torch.float32)
            history[owners, recent[real].long()] = faded[real]
        if "items" not in payload:
            return self._linear(history, payload)
        items, popularity = tensor(payload, "items")[0], tensor(payload, "popularity")
        below = popularity / (1 + popularity.max())
        if not len(items):
            return below
        modelled = self._linear(history[:, items], payload)
        return (modelled.amin(1, keepdim=True) - 1 + below).index_copy(1, items, modelled)

    def _linear(self, x: Tensor, payload: Payload) -> Tensor:
        owners, items = x.nonzero(as_tuple=True)
        counts = torch.bincount(owners, minlength=len(x))
        begins = counts.cumsum(0) - counts
        much = x[owners, items] if x.is_floating_point() else None
        if "weights" in payload:
            return embedding_bag(items, tensor(payload, "weights")[0], begins, mode="sum", per_sample_weights=much)
        if self.config.rank is None:
            history = items.new_full((len(x), max(1, int(counts.max()))), -1)
            history[owners, torch.arange(len(items), device=x.device) - begins[owners]] = items
            counted = x.float().gather(1, history.clamp(min=0)).where(history >= 0, 0)
            return weighted_scores(_model(payload), history, counted)
        vectors = tensor(payload, "vectors")[0]
        own = vectors.square().sum(1)  # the diagonal, which EASE sets to zero
        return (embedding_bag(items, vectors, begins, mode="sum", per_sample_weights=much) @ vectors.T - x * own) / (
            tensor(payload, "base")[0] - own
        )

    def contributions(
        self, task: Task, private: ClientState, payload: Payload, history: Tensor, items: Tensor
    ) -> Tensor:
        """The weights of the own items; items outside the model rank by popularity, to which nothing adds."""
        counts = recency(history, self.config.delta_q if "recent" in private else None)
        own, asked, known = history.clamp(min=0).long(), items, torch.ones_like(items, dtype=torch.bool)
        if "items" in payload:
            place = items.new_full((task.n_items,), -1)
            modelled = tensor(payload, "items")[0]
            place[modelled] = torch.arange(len(modelled), device=place.device)
            own, asked = place[own], place[items]
            counts, known = counts.where(own >= 0, 0), asked >= 0
            own, asked = own.clamp(min=0), asked.clamp(min=0)
        return self._parts(own, counts, asked, payload).where(known[:, None, :], 0)

    def _parts(self, own: Tensor, counts: Tensor, asked: Tensor, payload: Payload) -> Tensor:
        if self.config.rank is None:
            return weighted_parts(_model(payload), own, counts, asked)
        vectors = tensor(payload, "vectors")[0]
        alike = (vectors[own] @ vectors[asked].mT).where(own[:, :, None] != asked[:, None, :], 0)
        diagonal = vectors[asked].square().sum(2)
        return alike * counts[:, :, None] / (tensor(payload, "base")[0] - diagonal)[:, None, :]

    def _noised(self, task: Task, total: Tensor, kind: str, round: int) -> Tensor:
        """The sum with noise that all clients could add together, each a share of the variance."""
        if (epsilon := self.config.epsilon) is None:
            return total
        key = task.common_key(streams.Purpose.NOISE, round).to(total.device)
        blocks = torch.split(torch.arange(len(total), device=total.device), 1 << 22)
        noise = torch.cat([streams.normal(key, block).float() for block in blocks])
        return total + noise * self._noise_std(kind, epsilon)

    @property
    def _releases(self) -> int:
        """How many noisy sums the server sees: pairs of items, and items before where some are chosen."""
        return 1 if self.config.top_items is None else 2

    def _noise_std(self, kind: str, epsilon: float) -> float:
        """Noise multiplier times the L2 norm of the largest contribution (adding or removing one client)."""
        return self._sensitivity(kind) * noise_multiplier(epsilon, self.config.delta, self._releases)

    def _sensitivity(self, kind: str) -> float:
        """L2 norm of the largest contribution."""
        most = self.config.n_max or 0  # which noise needs
        if kind == "counts":
            return float(most**0.5)
        # upper triangle of x x': n(n+1)/2 ones, or that many values 1/n, whose norm is at most 1
        return 1.0 if self.config.normalise else float((most * (most + 1) / 2) ** 0.5)

    def diagnostics(self, task: Task, server: State, ledger: Ledger) -> dict[str, Any]:
        """Items in the model and, with noise, what the accountant says."""
        found: dict[str, Any] = {"items_modelled": len(server["items"])}
        if (epsilon := self.config.epsilon) is None:
            return found
        return found | report(epsilon, self.config.delta, self._noise_std("gram", epsilon), self._releases)


def _model(payload: Payload) -> State:
    return {name: tensor(payload, name)[0] for name in NAMES if name in payload}
