"""Items that are like an item: what a model thinks of somebody who has it alone, or vectors that point the same way."""

from __future__ import annotations

import torch
from torch import Tensor

from fedrec.errors import ConfigError
from fedrec.federation.recommender import Recommender
from fedrec.federation.trainer import FromHistory, Trainer

TABLES = ("server.items", "item", "server.vectors")
"""Where trainers keep vectors of items [m, d]."""


def similarities(method: Recommender, trainer: Trainer, item: int) -> Tensor:
    """[m]: how like each item is to ``item``, by its number; the item itself has the lowest value there is.

    Models whose scores are a function of a history give the scores of somebody who has had nothing else; those with a
    table of item vectors give the cosine. Other models have no such thing.
    """
    with torch.no_grad():
        if method.folds_in and isinstance(trainer, FromHistory):
            found = trainer.scores_from(torch.tensor([[item]]))[0].cpu().double()
        else:
            table = _table(method, trainer)
            found = torch.nn.functional.normalize(table, dim=1) @ torch.nn.functional.normalize(table[item], dim=0)
    found[item] = -torch.inf
    return found


def _table(method: Recommender, trainer: Trainer) -> Tensor:
    state = trainer.state()
    for name in TABLES:
        table = state.get(name)
        if table is not None and table.ndim == 2 and table.shape[1] > 1:
            return table.cpu().double()
    raise ConfigError(
        f"{method.name} keeps neither vectors of items nor weights between them at the server, so it has no similar items; "
        "fedslist, fedgram and fedmf do."
    )
