"""A trained method: what ``train`` returns and ``load_run`` reads back."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fedrec.errors import ConfigError, DataError
from fedrec.evaluation.evaluator import Evaluation
from fedrec.evaluation.ranking import top_items
from fedrec.federation.recommender import Recommender
from fedrec.federation.result import Result
from fedrec.federation.trainer import OfParts, Trainer
from fedrec.protocol.split import Split
from fedrec.running.explanation import MOST, Explanation, explain, explain_parts
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

    def client(self, user: str | int) -> int:
        """The number of a user with this original id, which may be a whole number written as text."""
        return self._code("user", user, self.split.data.user_index)

    def item(self, item: str | int) -> int:
        """The number of an item with this original id."""
        return self._code("item", item, self.split.data.item_index)

    def _code(self, kind: str, key: str | int, index: dict[str | int, int]) -> int:
        asked = key
        if key not in index:
            key = int(key) if isinstance(key, str) and re.fullmatch(r"-?[0-9]+", key) else str(key)
        if key not in index:
            raise DataError(
                f"{self.split.data.name} has no {kind} '{asked}' after the {self.split.protocol.name} filter; give one of its "
                f"ids, such as '{next(iter(index))}'."
            )
        return index[key]

    def recommend(self, user: str | int, k: int = 10) -> list[tuple[str | int, float]]:
        """The ``k`` best new items for a user, by original ids, with scores; whatever the user has had is left out."""
        data, client = self.split.data, self.client(user)
        if k < 1:
            raise ConfigError(f"a list of {k} items was asked for; use k of 1 or more.")
        scores = self.trainer.scores(torch.tensor([client])).cpu()
        seen = torch.from_numpy(self.split.touched[client].astype(np.int64))
        items = top_items(scores, (torch.zeros_like(seen), seen), min(k, data.n_items))[0]
        return [(data.item_ids[i], float(scores[0, i])) for i in items[items >= 0].tolist()]

    def similar(self, item: str | int, k: int = 10) -> list[tuple[str | int, float]]:
        """The ``k`` items most like an item, by original ids, for methods that know such a thing."""
        number, data = self.item(item), self.split.data
        if k < 1:
            raise ConfigError(f"a list of {k} items was asked for; use k of 1 or more.")
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

    def save(self, folder: str | Path) -> None:
        """Write result, per-client values and model to a folder; ``load_run`` reads it back."""
        if self.result.processes > 1 and torch.distributed.is_available() and torch.distributed.is_initialized():
            raise ConfigError("each process has a share of the model only; train into a run folder (out) instead.")
        save_values(Path(folder), self.per_client)
        save_model(Path(folder), self.trainer.state(), self.split)
        save_result(Path(folder), self.result)
