"""A trained method: what ``train`` returns and ``load_run`` reads back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from fedrec.errors import ConfigError
from fedrec.evaluation.evaluator import Evaluation
from fedrec.federation.recommender import Recommender
from fedrec.federation.result import Result
from fedrec.federation.trainer import OfParts, Trainer
from fedrec.protocol.split import Split
from fedrec.running.explanation import MOST, Explanation, explain, explain_parts
from fedrec.running.newcomers import Newcomers
from fedrec.running.recommending import Id, Lists, Shelf, best, check_length, code_of, lists
from fedrec.running.saving import save_model, save_result, save_values
from fedrec.running.similar import similarities


@dataclass(eq=False)
class Run:
    """Results, per-client values, and a model that recommends."""

    method: Recommender
    split: Split
    trainer: Trainer
    result: Result
    per_client: dict[str, Evaluation]

    @property
    def test(self) -> dict[str, dict[str, float]]:
        """Test metrics at the selected round, by ranking."""
        return {"sampled": self.result.test.sampled, "full": self.result.test.full}

    def client(self, user: Id) -> int:
        """The number of a user with this original id, which may be a whole number written as text."""
        return code_of("user", user, self.split.data.user_index, self._owner)

    def item(self, item: Id) -> int:
        """The number of an item with this original id."""
        return code_of("item", item, self.split.data.item_index, self._owner)

    @property
    def _owner(self) -> str:
        return f"after the {self.split.protocol.name} filter {self.split.data.name} has"

    @property
    def shelf(self) -> Shelf:
        """The items by their original ids."""
        return Shelf(self._owner.removesuffix(" has"), self.split.data.item_ids, self.split.data.item_index)

    def recommend(
        self,
        user: Id | None = None,
        k: int = 10,
        *,
        history: Iterable[Id] | None = None,
        only: Iterable[Id] | None = None,
        without: Iterable[Id] = (),
    ) -> list[tuple[Id, float]]:
        """The ``k`` best new items for a user, by original ids, with scores; whatever the user has had is left out.

        In place of a user, a ``history`` of items, oldest first, is that of somebody new: item-item methods score it
        at once, and methods with private state train it on the spot against the server's state (``newcomers``).
        Among the items ``only`` where given, and never those of ``without``.
        """
        check_length(k)
        closed = self.shelf.closed(only, without)
        if (user is None) == (history is None):
            raise ConfigError("recommendations are for a user of the data or for a history; give one of them.")
        if history is not None:
            seen = self.shelf.numbers(history)
            scores = self.newcomers.scores(seen)
        else:
            client = self.client(user)  # type: ignore[arg-type]
            scores = self.trainer.scores(torch.tensor([client]))[0].cpu()
            seen = torch.from_numpy(self.split.touched[client].astype(np.int64))
        return self.shelf.named(scores, best(scores, seen, k, closed))

    def lists(
        self,
        users: Iterable[Id] | None = None,
        k: int = 10,
        *,
        only: Iterable[Id] | None = None,
        without: Iterable[Id] = (),
    ) -> Iterator[Lists]:
        """The best new items of many users, by default of all, some users at a time; ``write_lists`` makes a file of them."""
        n = self.split.data.n_users
        clients = range(n) if users is None else [self.client(user) for user in users]
        return lists(
            self.trainer,
            clients,
            self.split.touched,
            self.split.data.n_items,
            check_length(k),
            self.shelf.closed(only, without),
        )

    @cached_property
    def newcomers(self) -> Newcomers:
        """The model as it is for people who were not there in training; refuses where the method cannot."""
        return Newcomers(
            self.method,
            self.trainer.state(),
            self.split.data.n_items,
            ordered=self.split.training.history is not None,
            seed=self.result.seed,
            rounds=self.result.model_round,
            device=getattr(self.trainer, "device", "cpu"),
        )

    def similar(self, item: str | int, k: int = 10) -> list[tuple[str | int, float]]:
        """The ``k`` items most like an item, by original ids, for methods that know such a thing."""
        number, data, k = self.item(item), self.split.data, check_length(k)
        found = similarities(self.method, self.trainer, number)
        best = found.topk(min(k, max(1, data.n_items - 1))).indices.tolist()
        return [(data.item_ids[i], float(found[i])) for i in best if i != number]

    def title(self, item: str | int) -> str | None:
        """The title of an item by its original id, where the data came with titles."""
        return self.split.data.title(item)

    def explain(self, user: str | int, *items: str | int, most: int = MOST) -> list[Explanation]:
        """What a user's past has to do with the scores of ``items`` (original ids), for methods that say they ``explains``.

        Of every item the ``most`` past items that add or take most; their parts and the rest are the score. Of a blend: what each
        of its parts adds.
        """
        if isinstance(self.trainer, OfParts):
            wanted = torch.tensor([self.item(item) for item in items], dtype=torch.int64)
            return explain_parts(self.trainer, self.split.data, torch.tensor([self.client(user)]), wanted)
        own = torch.tensor(self.split.training.own_list(self.client(user)), dtype=torch.int64)
        asked = torch.tensor([self.item(item) for item in items], dtype=torch.int64)
        return explain(self.method, self.trainer, self.split.data, own, asked, most)

    def explain_history(self, history: Iterable[Id], *items: Id, most: int = MOST) -> list[Explanation]:
        """The same for somebody new, by what they have had, oldest first."""
        own = self.shelf.numbers(history)
        return explain(self.method, self.trainer, self.split.data, own, self.shelf.numbers(items), most)

    def save(self, folder: str | Path) -> None:
        """Write result, per-client values and model to a folder; ``load_run`` reads it back."""
        if self.result.processes > 1 and torch.distributed.is_available() and torch.distributed.is_initialized():
            raise ConfigError("each process has a share of the model only; train into a run folder (out) instead.")
        save_values(Path(folder), self.per_client)
        save_model(Path(folder), self.trainer.state(), self.split)
        save_result(Path(folder), self.result)
