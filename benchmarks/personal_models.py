"""Two ways to personal models that do not win: ``python benchmarks/personal_models.py clusters|warm [DATA]`` (docs/personalisation.md).

clusters: clients choose the fedslist weights of a cluster, which predict the items best that they held back; a cluster's sums are those
of all clients and ``kappa`` times its own. warm: FedEM and PFedRec start from FedMF's table and user vectors, and FedEM's adapters may
be fitted on held-back items against tables that do not know them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

import fedrec
from fedrec.data.training import Ragged, TrainingView
from fedrec.evaluation import Evaluator, compare
from fedrec.federation.trainer import Setup
from fedrec.methods import create
from fedrec.methods.fedem.method import MeanFedEM
from fedrec.methods.fedgains.config import without
from fedrec.methods.fedslist.config import SlistConfig
from fedrec.methods.pfedrec import PFedRec
from fedrec.parts.order import add_histories
from fedrec.parts.recent import own_history

Values = dict[str, dict[str, Any]]
HELD = 10


class Judge:
    """Keeps every user's NDCG@10 over all items of whatever it is shown."""

    def __init__(self, split: fedrec.Split) -> None:
        self.evaluator, self.values = Evaluator(split), Values()

    def look(self, scorer: Callable[[Tensor], Tensor]) -> dict[str, Any]:
        """Every user's value, by part."""
        found = self.evaluator.evaluate(scorer, "validation", "test")
        return {part: value.full["ndcg@10"] for part, value in found.items()}

    def keep(self, name: str, values: dict[str, Any], note: str = "") -> None:
        """Remember, and print the means."""
        self.values[name] = values
        means = ", ".join(f"{part} {np.nanmean(v):.4f}" for part, v in values.items())
        print(f"{name}: {means} {note}", flush=True)

    def compared(self, base: str) -> None:
        """Print differences to ``base``."""
        for part in ("validation", "test"):
            runs = {name: values[part][~np.isnan(values[part])] for name, values in self.values.items()}
            for c in compare(runs, base):
                interval = f"({c.low:+.4f} to {c.high:+.4f}), p {c.wilcoxon_p:.3f}"
                print(f"{part}, {c.first} - {base}: {c.difference:+.4f} {interval}")


def weights(histories: list[Tensor], much: list[float], m: int, config: SlistConfig) -> Any:
    """fedslist's weights of sums over these histories, each so many times."""
    sums = torch.zeros(2, m, m, dtype=torch.int64)
    for history, times in zip(histories, much, strict=True):
        own = torch.zeros_like(sums)
        add_histories(own[0], own[1], history, (history >= 0).sum(1), config.decay(True))
        sums += (own * times).long()
    return config.solved(sums[0], sums[1], True)


def clusters(split: fedrec.Split, settings: list[tuple[int, float, float]], rounds: int = 4) -> Judge:
    """Clusters of clients (how many, kappa, lam) beside one model for all."""
    n, m, base = split.data.n_users, split.data.n_items, SlistConfig(a=0.3, lam=300, delta_q=10)
    history = own_history(split.training, torch.arange(n))["history"]
    lengths = (history >= 0).sum(1)
    held = (lengths // 3).clamp(max=HELD)
    before, judge = without(history, held), Judge(split)

    def places(model: Any) -> Tensor:  # mean logarithm of the ranks of the items that every client held back
        total = torch.zeros(n)
        for pick in range(HELD):
            left = (held - pick).clamp(min=1)
            past, item = without(history, left), history.gather(1, (lengths - left)[:, None]).long()
            scores = base.scores(model, past)
            seen = torch.zeros(n, m + 1, dtype=torch.bool).scatter_(1, past.long().where(past >= 0, m), True)[:, :m]
            better = ((scores > scores.gather(1, item)) & ~seen).sum(1)
            total += torch.log1p(better.float()).where(pick < held, 0)
        return total / held.clamp(min=1)

    def models(of: Tensor, cluster: Tensor, count: int, kappa: float, lam: float) -> list[Any]:
        config = base.model_copy(update={"lam": lam})
        return [weights([of, of[cluster == k]], [1.0, kappa], m, config) for k in range(count)]

    def scorer(found: list[Any], cluster: Tensor) -> Callable[[Tensor], Tensor]:
        def scores(who: Tensor) -> Tensor:
            each = torch.stack([base.scores(model, history[who]) for model in found])
            return each[cluster[who], torch.arange(len(who))]

        return scores

    judge.keep("fedslist", judge.look(scorer([weights([history], [1.0], m, base)], torch.zeros(n, dtype=torch.int64))))
    for count, kappa, lam in settings:
        cluster = torch.randint(count, (n,), generator=torch.Generator().manual_seed(0))
        name = f"{count} clusters, kappa {kappa:g}, lam {lam:g}"
        by_chance = judge.look(scorer(models(history, cluster, count, kappa, lam), cluster))
        for _ in range(rounds):
            cluster = torch.stack([places(model) for model in models(before, cluster, count, kappa, lam)]).argmin(0)
        judge.keep(name, judge.look(scorer(models(history, cluster, count, kappa, lam), cluster)))
        judge.keep(f"{name}, by chance", by_chance)
    return judge


def without_held(view: TrainingView) -> TrainingView:
    """Training items without those that are held back."""
    lists, kept = view.positives, []
    for client in range(len(lists)):
        kept += [lists[client][: len(lists[client]) - min(HELD, len(lists[client]) // 3)]]
    build, owners = Ragged.build, np.repeat(np.arange(len(lists)), [len(own) for own in kept])
    own = build(owners, np.concatenate(kept), len(lists))
    known = build(owners, np.concatenate([np.unique(each) for each in kept]), len(lists))
    return TrainingView(view.n_clients, view.n_items, own, known, own)


class WarmFedEM(MeanFedEM):
    """FedEM whose clients start from a table and user vectors; ``held``: adapters see held-back items, the rest of training the others."""

    first_table: Tensor
    first_users: Tensor
    held = False

    def _start(self, task: Any) -> Tensor:
        return self.first_table

    def client_state(self, task: Any, clients: Tensor) -> Any:
        """FedMF's user vectors."""
        return super().client_state(task, clients) | {"user": self.first_users[clients]}

    def train(self, task: Any, private: Any, payload: Any, samples: Any, round: int) -> Any:
        """As FedEM's, on the items that are not held back."""
        if self.held:
            size = 1 + self.config.negatives
            samples = replace(samples, counts=samples.counts - (samples.positives // 3).clamp(max=HELD) * size)
        return super().train(task, private, payload, samples, round)

    def _adapter_phase(self, private: Any, theta: Any, user: Any, server: Any, samples: Any) -> None:
        if self.held:
            count = (samples.positives // 3).clamp(max=HELD) * (1 + self.config.negatives)
            place = samples.counts[:, None] + torch.arange(max(1, int(count.max())))
            place = place.clamp(max=samples.items.shape[1] - 1)
            parts = {name: getattr(samples, name).gather(1, place) for name in ("items", "labels", "slots")}
            samples = replace(samples, counts=count, **parts)
        super()._adapter_phase(private, theta, user, server, samples)


class WarmPFedRec(PFedRec):
    """PFedRec whose clients start from a table and user vectors."""

    first_table: Tensor
    first_users: Tensor

    def server_state(self, task: Any) -> Any:
        """FedMF's table."""
        return {"items": self.first_table.clone()}

    def client_state(self, task: Any, clients: Tensor) -> Any:
        """FedMF's user vectors as score units, and their scores."""
        users = self.first_users[clients]
        return {"unit": torch.cat([users, torch.zeros(len(clients), 1)], 1), "own": users @ self.first_table.T}


def warm(split: fedrec.Split, data: str, rounds: int, shared_rounds: int | None = None) -> Judge:
    """FedEM and PFedRec from FedMF."""
    judge, view = Judge(split), split.training

    def best(method: Any, name: str, known: Any = None) -> Any:
        trainer = method.trainer(view, Setup(0))
        if known is not None:
            trainer.load_state(trainer.state() | known)
        found, at = judge.look(trainer.scores), 0
        for number in range(1, rounds + 1):
            trainer.round(number - 1)
            if number % 5 == 0 and np.nanmean((seen := judge.look(trainer.scores))["validation"]) > np.nanmean(
                found["validation"]
            ):
                found, at = seen, number
        judge.keep(name, found, f"at round {at}")
        return trainer

    shared = create("fedmf", {}, data=data)
    starts, at = [], shared_rounds or shared.rounds
    for seen in (view, without_held(view)):
        trainer = shared.trainer(seen, Setup(0))
        for number in range(at):
            trainer.round(number)
        starts.append(
            (trainer.state()["server.items"].clone(), trainer.state()["clients.user"][trainer.store.row].clone())
        )
        if seen is view:
            judge.keep("fedmf", judge.look(trainer.scores), f"at round {at}")

    def fedem(start: tuple[Tensor, Tensor], held: bool = False, **options: Any) -> WarmFedEM:
        tuned = create("fedem", {}, data=data).config.model_dump() | {"lr": 0.01, "epochs": 2} | options
        method = WarmFedEM(**{name: value for name, value in tuned.items() if name != "variant"})
        method.first_table, method.first_users, method.held = *start, held
        return method

    best(fedem(starts[0]), "fedem from fedmf")
    for rate in (0.01, 0.1):
        adapters = {"adapter_lr": rate, "adapter_epochs": 3}
        best(fedem(starts[0], **adapters), f"fedem from fedmf, adapters at {rate}")
        first = fedem(starts[1], held=True, **adapters).trainer(view, Setup(0))
        for number in range(10):
            first.round(number)
        known = {"clients.adapter": first.state()["clients.adapter"]}
        fixed = fedem(starts[0], **adapters | {"adapter_lr": 1e-12})
        best(fixed, f"fedem from fedmf, adapters at {rate} on held-back items", known)
    for rate in (0.01, 0.1):
        tuned = create("pfedrec", {}, data=data).config.model_dump()
        own = {"dim": starts[0][0].shape[1], "score_table": "own", "lr": rate, "lr_item": 20 * rate}
        method = WarmPFedRec(**tuned | own)
        method.first_table, method.first_users = starts[0]
        best(method, f"pfedrec from fedmf, unit at {rate}")
    return judge


def main() -> None:
    """Run one of the two."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", choices=["clusters", "warm"])
    parser.add_argument("data", nargs="?", default="ml-100k")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--shared-rounds", type=int)
    given = parser.parse_args()
    split = fedrec.HONEST.split(fedrec.load(given.data), seed=0)
    if given.which == "clusters":
        clusters(split, [(2, 2, 300), (4, 2, 600)]).compared("fedslist")
    else:
        warm(split, given.data, given.rounds, given.shared_rounds).compared("fedmf")


if __name__ == "__main__":
    main()
