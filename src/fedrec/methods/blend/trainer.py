"""Trains the parts of a blend, or takes them from their runs, and adds up their scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedrec.compute.memory import available
from fedrec.data.training import TrainingView
from fedrec.errors import ConfigError
from fedrec.federation.mixture import Mixture
from fedrec.federation.recommender import Recommender
from fedrec.federation.trainer import FromHistory, RoundReport, Setup, Trainer, is_private, is_secret
from fedrec.running.saved import read_result, restore


class BlendTrainer:
    """Rounds of it are weights to try; the first also trains the parts."""

    views: tuple[str, ...] = ()
    logits = False

    def __init__(
        self,
        methods: Sequence[Recommender],
        rounds: Sequence[int],
        runs: Sequence[str | None],
        candidates: Sequence[tuple[float, ...]],
        view: TrainingView,
        setup: Setup,
    ) -> None:
        """Untrained parts."""
        self.methods, self.rounds, self.runs, self.candidates, self.view = methods, rounds, runs, candidates, view
        self.device = setup.device
        self.parts: list[Trainer] = [method.trainer(view, setup) for method in methods]
        self.private_bytes = sum(part.private_bytes for part in self.parts)
        self.weights = torch.tensor(candidates[0], dtype=torch.float64)
        self.trained = torch.zeros(1, dtype=torch.bool)
        self._known: dict[bytes, list[Tensor]] = {}
        self._room = available(torch.device("cpu")) // 8

    def round(self, number: int) -> RoundReport:
        """Other weights, with trained parts."""
        report = RoundReport(loss=0.0)
        if not bool(self.trained):
            for method, part, rounds, run in zip(self.methods, self.parts, self.rounds, self.runs, strict=True):
                if run is not None:
                    self._take(method, part, run)
                    continue
                for inner in range(rounds):
                    report.add(part.round(inner))
            self.trained[0] = True
            self._known.clear()
        self.weights = torch.tensor(self.candidates[number % len(self.candidates)], dtype=torch.float64)
        return report

    def _take(self, method: Recommender, part: Trainer, folder: str) -> None:
        run = restore(method, folder, read_result(folder), str(self.device))
        own, theirs = self.view, run.split.training
        same = own.n_clients == theirs.n_clients and own.n_items == theirs.n_items
        lists = ((own.positives, theirs.positives), (own.history, theirs.history)) if same else ()
        for mine, other in lists:
            same = same and (mine is None) == (other is None)
            if mine is not None and other is not None:
                same = (
                    same and np.array_equal(mine.offsets, other.offsets) and np.array_equal(mine.values, other.values)
                )
        if not same:
            raise ConfigError(
                f"{folder} was trained on other training items than this blend; give the data, protocol and seed of that run."
            )
        part.load_state(run.trainer.state())

    @property
    def folds_in(self) -> bool:
        """Where a part does; the others score with what they were trained on."""
        return any(part.folds_in for part in self.parts)

    @property
    def client_order(self) -> Tensor | None:
        """That of the part with most private state."""
        return max(self.parts, key=lambda part: part.private_bytes).client_order

    @property
    def most_uploads(self) -> int:
        """Uploads of all parts together."""
        return sum(part.most_uploads for part in self.parts)

    def scores(self, clients: Tensor, view: str | None = None, later: Tensor | None = None) -> Tensor:
        """The weighted sum of the parts' z-scores."""
        if view is not None:
            raise KeyError(view)
        return self._weighted(self._scaled(clients, later))

    def scores_from(self, history: Tensor) -> Tensor:
        """The same for anybody with these items, where every part can."""
        found = []
        for method, part in zip(self.methods, self.parts, strict=True):
            if not (part.folds_in and isinstance(part, FromHistory)):
                raise ConfigError(f"{method.name} knows its own users only, so this blend cannot score anybody else.")
            found.append(z_scores(part.scores_from(history)))
        return self._weighted(found)

    def added(self, clients: Tensor, items: Tensor) -> dict[str, Tensor]:
        """What every part adds to the scores of ``items`` [k] of these clients, [c, k], by its name."""
        names = [method.name for method in self.methods]
        unique = [name if names.count(name) == 1 else f"{name} ({i + 1})" for i, name in enumerate(names)]
        scaled = self._scaled(clients, None)
        parts = zip(unique, self.weights.tolist(), scaled, strict=True)
        return {name: weight * z[:, items.to(z.device)] for name, weight, z in parts}

    def _weighted(self, scaled: list[Tensor]) -> Tensor:
        total = torch.zeros_like(scaled[0])
        for weight, z in zip(self.weights.tolist(), scaled, strict=True):
            total.add_(z, alpha=weight)
        return total

    def _scaled(self, clients: Tensor, later: Tensor | None) -> list[Tensor]:
        """z-scores of every part; kept while there is room, for the next weights need them again."""
        key = clients.cpu().numpy().tobytes() + (b"" if later is None else b"later" + later.cpu().numpy().tobytes())
        if key in self._known:
            return self._known[key]
        found = []
        for part in self.parts:
            found.append(z_scores(part.scores(clients, later=later if part.folds_in else None)))
        size = sum(z.numel() * z.element_size() for z in found)
        if size <= self._room and bool(self.trained):
            self._room -= size
            self._known[key] = found
        return found

    def mixtures(self, clients: Tensor) -> Iterator[tuple[Tensor, Mixture]]:
        """None."""
        return iter(())

    def client_groups(self) -> dict[str, Tensor]:
        """None."""
        return {}

    def diagnostics(self) -> dict[str, Any]:
        """The weights, and what the parts have to say."""
        names = [method.name for method in self.methods]
        return {
            "parts": names,
            "weights": [round(weight, 6) for weight in self.weights.tolist()],
            "of_parts": [part.diagnostics() for part in self.parts],
        }

    def state(self) -> dict[str, Tensor]:
        """Weights and all parts' states; what is private of a part stays private."""
        found = {"weights": self.weights, "trained": self.trained}
        for number, part in enumerate(self.parts):
            found |= {_name(number, name): value for name, value in part.state().items()}
        return found

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Continue from a saved state."""
        self._room += sum(z.numel() * z.element_size() for zs in self._known.values() for z in zs)
        self._known.clear()
        self.weights, self.trained = state["weights"].cpu().clone(), state["trained"].cpu().clone()
        for number, part in enumerate(self.parts):
            part.load_state({name: state[_name(number, name)] for name in part.state()})


def _name(number: int, name: str) -> str:
    if is_private(name) or is_secret(name):
        head, _, rest = name.partition(".")
        return f"{head}.part{number}.{rest}"
    return f"part{number}.{name}"


def z_scores(scores: Tensor) -> Tensor:
    """Every row with mean 0 and standard deviation 1, as float32; constant rows are zero."""
    wide = scores.double()
    centred = wide - wide.mean(1, keepdim=True)
    return (centred / centred.square().mean(1, keepdim=True).sqrt().clamp(min=1e-12)).float()
