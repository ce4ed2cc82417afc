"""FedGains (ours): fedslist, and on top of it a few gains that every client learns for itself on its device.

A client ranks all items six times with what the server publishes (by what comes next, with three decays of its history; by what is had
together; by how popular items are, and are now) and adds the logarithms up. How much each ranking counts it fits on its own newest
items, against weights from everybody's older ones, shrunk towards the mean of all clients. Servers see sums only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedrec.data.training import TrainingView
from fedrec.method import (
    ClientState,
    Ledger,
    MethodConfig,
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
from fedrec.methods.fedgains.config import COUNTS, RANKINGS, FedGainsConfig, Which, without
from fedrec.methods.fedgains.gains import newton
from fedrec.methods.fedslist.config import ORDERED, SUMS
from fedrec.methods.fedslist.method import Pairs
from fedrec.parts.gram import check_square
from fedrec.parts.order import add_histories
from fedrec.parts.published import weighted_scores
from fedrec.parts.recent import appended, own_history, recency

STAGE, MEAN, SPREAD = "stage", "mean", "spread"
START_SPREAD = 0.05
"""Variance of gains before any were seen."""
LEAST_SPREAD = 1e-4
AT_ONCE = 1 << 25
"""Numbers of all rankings of all picks that are held at a time."""
PER_ENTRY = 2 * SUMS
"""Bytes for every pair of items: the two sums, and R without order."""


@dataclass(frozen=True, eq=False)
class Counted(Pairs):
    """Matrices of a client and what popularity is counted from, held as its history."""

    recent: int = 0


class FedGains(SumMethod):
    """Shared rankings, personal gains."""

    name = "fedgains"
    title = (
        "personal gains on shared rankings: fedslist, popularity and what is had together, weighed on the device (ours)"
    )
    paper = "ours, after Choi et al. 2021 and Steck 2019"
    private = "the client's own history, in order, and its gains"
    uploaded = "two item-item matrices, twice, and moments of six gains, for sums over clients only"
    server_keeps = "item-item weights, counts of items, mean and spread of gains"
    Config = FedGainsConfig
    config: FedGainsConfig
    logits = False
    telling = ("variant", "personal")
    folds_in = True

    def __init__(self, config: MethodConfig | None = None, **options: Any) -> None:
        """Sums of older items, rounds that look for gains, sums of all items."""
        super().__init__(config, **options)
        self.rounds = self.config.gain_rounds + 2

    def privacy_problem(self) -> str:
        """There is none for the sums of gains."""
        return "it has no noise for its sums; take fedslist with epsilon and n_max"

    def participants(self, task: Task, server: State, round: int) -> Tensor:
        """Everybody for sums, a sample for gains."""
        able = task.able
        if not 0 < round <= self.config.gain_rounds or len(able) <= self.config.sample:
            return able
        drawn = task.participation_rng(round).choice(len(able), self.config.sample, replace=False)
        return able[torch.from_numpy(drawn).sort().values]

    def server_state(self, task: Task) -> State:
        """No weights yet, and gains to begin with."""
        need = PER_ENTRY + (16 if self.config.keep is None else 0)
        check_square(self.name, task.n_items, task.device, self.config.memory_gb, "filter the data", per_entry=need)
        mean = torch.tensor(self.config.start, dtype=torch.float64, device=task.device)
        spread = START_SPREAD * torch.eye(len(mean), dtype=torch.float64, device=task.device)
        stage = torch.zeros(1, dtype=torch.int64, device=task.device)
        return self.config.nothing(task.n_items, task.device) | {STAGE: stage, MEAN: mean, SPREAD: spread}

    def client_state(self, task: Task, clients: Tensor) -> State:
        """Nothing beside the history, which gains follow from."""
        return {}

    def own_data(self, view: TrainingView, clients: Tensor) -> State:
        """The history, oldest first, and whether its order means anything."""
        timed = torch.full((len(clients),), view.history is not None)
        return own_history(view, clients) | {"timed": timed}

    def broadcast(self, task: Task, server: State, clients: Tensor) -> Payload:
        """What is known so far: nothing, weights of older items, then of all items."""
        stage = int(server[STAGE])
        hidden = {0: ("before.", "now."), 1: ("now.",)}.get(stage, ())
        names = [name for name in server if name != STAGE and not name.startswith(hidden)] if stage else []
        return {name: broadcast(server[name], len(clients)) for name in names}

    def train(
        self, task: Task, private: ClientState, payload: Payload, samples: Samples, round: int
    ) -> tuple[Payload, Tensor]:
        """First sums of older items, then gains, then sums of all items."""
        c, history, timed = self.config, private["history"], bool(private["timed"][0])
        lossless, m = torch.zeros(len(private)), task.n_items
        if 0 < round <= c.gain_rounds:
            if not (timed and c.uses_order):
                return {}, lossless
            return self._moments(history, _model(payload))
        known = without(history, c.held_back(history)) if round == 0 else history
        dense = m * (m + 1) // 2 + m**2 + 2 * m
        return {"pairs": Counted(known, dense=dense, decay=c.decay(timed), recent=c.recent)}, lossless

    def _moments(self, history: Tensor, model: State) -> tuple[Payload, Tensor]:
        """Of each client that has picks: a one, its gains and squares of what they differ by; and the loss of a pick.

        Where gains are shared, the slope of the likelihood at them and how it bends.
        """
        held = self.config.held_back(history)
        first, second, value = self._looked_at(history, held, model, float(self.config.personal > 0))
        if self.config.personal > 0:
            apart = first - model[MEAN]
            second = second + apart[:, :, None] * apart[:, None, :]
        real = (held > 0).to(first)
        parts = {"fitted": real, "gains": first * real[:, None], "squares": second * real[:, None, None]}
        return dict(parts), (-value / held.clamp(min=1)).float().cpu()

    def _looked_at(self, history: Tensor, held: Tensor, model: State, personal: float) -> tuple[Tensor, Tensor, Tensor]:
        """Gains, their covariances and log-likelihoods, or where gains are shared slopes and curvatures of these.

        So many clients at a time that their rankings fit.
        """
        mean = model[MEAN]
        size, found = max(1, int(held.max())) * model[f"before.{COUNTS}"].shape[1] * len(RANKINGS), []
        for block in torch.split(torch.arange(len(history), device=history.device), max(1, AT_ONCE // size)):
            picks = self.config.picks(model, history[block], held[block])
            if personal > 0:
                found.append(picks.fitted(mean, model[SPREAD] * personal))
            else:
                value, slope, bent = picks.likelihood(mean.float().expand(len(block), -1))
                found.append((slope.double(), bent.double(), value))
        first, second, value = (torch.cat(parts) for parts in zip(*found, strict=True))
        return first, second, value

    def contribute(self, task: Task, upload: Upload, total: Total) -> None:
        """A's upper triangle, R and counts of items in whole units, or moments of gains."""
        if "pairs" not in upload.parts:
            for name in upload.parts:
                total.add(name, tensor(upload.parts, name).sum(0))
            return
        pairs = upload.parts["pairs"]
        assert isinstance(pairs, Counted)
        items, m = pairs.value, task.n_items
        lengths = (items >= 0).sum(1)
        past, after = (total.table(name, m, m, like=items, dtype=torch.int64) for name in ("past", "after"))
        add_histories(past, after, items, lengths, pairs.decay)
        age = lengths[:, None] - 1 - torch.arange(items.shape[1], device=items.device)
        counts = total.table(COUNTS, 2, m, like=items, dtype=torch.int64)
        for row, newest in enumerate((items.shape[1], pairs.recent)):
            counts[row] += torch.bincount(items[(age >= 0) & (age < newest)].long(), minlength=m)
        total.add("timed", float(len(items) if pairs.decay.ordered else 0))

    def step(self, task: Task, server: State, total: Total, round: int) -> State:
        """Weights of what was added up, or mean and spread of gains."""
        if not total:
            return server
        if "past" in total:
            which: Which = "before" if round == 0 else "now"
            stage = torch.full_like(server[STAGE], 1 if round == 0 else 2)
            known = torch.tensor([bool(total["timed"] > 0)], device=task.device)
            learned = self.config.learned(which, total["past"], total["after"], total[COUNTS])
            return server | learned | {STAGE: stage, ORDERED: known}
        if not total["fitted"] > 0:
            return server
        if self.config.personal == 0:
            return server | {MEAN: server[MEAN] + newton(total["gains"], total["squares"])}
        mean = total["gains"] / total["fitted"]
        moved = mean - server[MEAN]
        spread = total["squares"] / total["fitted"] - moved[:, None] * moved[None, :]
        return server | {MEAN: mean, SPREAD: spread + LEAST_SPREAD * torch.eye(len(mean)).to(spread)}

    def fold_in(self, task: Task, private: ClientState, later: Tensor) -> State:
        """The history goes on, and gains follow from it."""
        return {"history": appended(private["history"], later)}

    def scores(self, task: Task, private: ClientState, payload: Payload) -> Tensor:
        """Rankings times gains, which are personal once all weights are there; the weights' own scores without order."""
        c, history, model = self.config, private["history"], _model(payload)
        if MEAN not in model:
            return torch.zeros(len(history), task.n_items, device=history.device)
        which: Which = "now" if f"now.{COUNTS}" in model else "before"
        if not bool(model[ORDERED]):
            weights = {name.split(".")[-1]: value for name, value in model.items() if name.startswith(f"{which}.next.")}
            return weighted_scores(weights, history, recency(history, None))
        gains = model[MEAN].expand(len(history), -1)
        if which == "now" and c.personal > 0:
            gains = self._looked_at(history, c.held_back(history), model, c.personal)[0]
        blocks = torch.split(torch.arange(len(history), device=history.device), max(1, AT_ONCE // (8 * task.n_items)))
        found = [
            (c.features(model, which, history[block]) @ gains[block].float()[:, :, None]).squeeze(2) for block in blocks
        ]
        return torch.cat(found)

    def diagnostics(self, task: Task, server: State, ledger: Ledger) -> dict[str, Any]:
        """Whether order counted; mean of gains and how much clients differ."""
        about = self.config.about(server)
        if not bool(server[ORDERED]):
            return about
        spread = (server[SPREAD].diagonal() * self.config.personal).sqrt()
        mean = [round(float(value), 3) for value in server[MEAN]]
        differ = [round(float(value), 3) for value in spread]
        return about | {
            "gains": dict(zip(RANKINGS, mean, strict=True)),
            "differ": dict(zip(RANKINGS, differ, strict=True)),
        }


def _model(payload: Payload) -> State:
    return {name: tensor(payload, name)[0] for name in payload}
