"""Item-item weights as they are published: all of them, or the largest of every item in few bits; and scores from them.

A model is a dictionary of tensors: ``weights`` [m, m], or ``values`` at ``kept`` items [m, keep], with a ``scale`` [m] where values are int8.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedrec.federation.config import MethodConfig
from fedrec.federation.payload import State
from fedrec.parts.recent import dense_parts, dense_scores, kept_parts, kept_scores, largest

FORMS = {32: torch.float32, 16: torch.float16, 8: torch.int8}
NAMES = ("weights", "values", "kept", "scale")


class WeightsConfig(MethodConfig):
    """Settings of methods whose model is a matrix of weights between items."""

    keep: int | None = Field(None, ge=1)
    """Publish only so many weights of every item, the largest; none: all of them."""
    bits: Literal[32, 16, 8] = 32
    """Of every kept weight: float32, float16, or int8 with a scale per item; all weights are float32."""
    memory_gb: float | None = Field(None, gt=0)
    """Refuse catalogues whose item-item matrices need more; by default what is free."""


def no_weights(config: WeightsConfig, n_items: int, device: torch.device) -> State:
    """The model before there is any."""
    if config.keep is None:
        return {"weights": torch.zeros(n_items, n_items, device=device)}
    shape, numbers = (n_items, min(config.keep, n_items)), torch.int16 if n_items < 1 << 15 else torch.int32
    found = {
        "values": torch.zeros(shape, dtype=FORMS[config.bits], device=device),
        "kept": torch.zeros(shape, dtype=numbers, device=device),
    }
    return found | ({"scale": torch.ones(n_items, device=device)} if config.bits == 8 else {})


def published(config: WeightsConfig, blocks: Iterable[Tensor], n_items: int, device: torch.device) -> State:
    """The model made of these blocks of rows, of which no more than one is held at a time."""
    found, first = no_weights(config, n_items, device), 0
    for rows in blocks:
        to = slice(first, first + len(rows))
        first += len(rows)
        rows = rows.float()
        if config.keep is None:
            found["weights"][to] = rows
            continue
        values, items = largest(rows, config.keep)
        found["kept"][to] = items.to(found["kept"].dtype)
        if config.bits == 8:
            scale = values.abs().amax(1).clamp(min=1e-30) / 127
            found["scale"][to] = scale
            values = (values / scale[:, None]).round()
        found["values"][to] = values.to(found["values"].dtype)
    return found


def weighted_scores(model: State, history: Tensor, counts: Tensor) -> Tensor:
    """Scores [c, m] of histories [c, W] whose items count so much."""
    if "weights" in model:
        return dense_scores(history, counts, model["weights"])
    return kept_scores(history, counts, _values(model), model["kept"])


def weighted_parts(model: State, history: Tensor, counts: Tensor, items: Tensor) -> Tensor:
    """What every item of these histories adds to the scores of ``items`` [c, k], as [c, W, k]."""
    if "weights" in model:
        return dense_parts(history, counts, model["weights"], items)
    return kept_parts(history, counts, _values(model), model["kept"], items)


def _values(model: State) -> Tensor:
    values = model["values"].float()
    return values * model["scale"][:, None] if "scale" in model else values
