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
from fedrec.federation.trainer import Trainer
from fedrec.protocol.split import Split
from fedrec.running.saving import save_model, save_result, save_values


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
        data, key = self.split.data, user
        if key not in data.user_index:
            key = int(user) if isinstance(user, str) and re.fullmatch(r"-?[0-9]+", user) else str(user)
        if key not in data.user_index:
            raise DataError(
                f"{data.name} has no user '{user}' after the {self.split.protocol.name} filter; give one of its ids, such as "
                f"'{data.user_ids[0]}'."
            )
        return data.user_index[key]

    def recommend(self, user: str | int, k: int = 10) -> list[tuple[str | int, float]]:
        """The ``k`` best new items for a user, by original ids, with scores; whatever the user has had is left out."""
        data, client = self.split.data, self.client(user)
        if k < 1:
            raise ConfigError(f"a list of {k} items was asked for; use k of 1 or more.")
        scores = self.trainer.scores(torch.tensor([client])).cpu()
        seen = torch.from_numpy(self.split.touched[client].astype(np.int64))
        items = top_items(scores, (torch.zeros_like(seen), seen), min(k, data.n_items))[0]
        return [(data.item_ids[i], float(scores[0, i])) for i in items[items >= 0].tolist()]

    def save(self, folder: str | Path) -> None:
        """Write result, per-client values and model to a folder; ``load_run`` reads it back."""
        save_values(Path(folder), self.per_client)
        save_model(Path(folder), self.trainer, self.split)
        save_result(Path(folder), self.result)
