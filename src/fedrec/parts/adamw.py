"""AdamW (Loshchilov and Hutter, ICLR 2019) as a function of a model's state, for models whose gradient comes from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fedrec.federation.payload import State

BETAS, EPS = (0.9, 0.999), 1e-8
MOMENTS = ("first", "second")


@torch.no_grad()
def stepped(model: State, gradient: Mapping[str, Tensor], *, lr: float, weight_decay: float) -> State:
    """The model after one step; ``first.NAME``, ``second.NAME`` and ``steps`` are part of it."""
    steps = model["steps"] + 1
    new = model | {"steps": steps}
    corrections = [1 - beta**steps for beta in BETAS]
    for name, slope in gradient.items():
        first = torch.lerp(model[f"first.{name}"], slope, 1 - BETAS[0])
        second = torch.lerp(model[f"second.{name}"], slope.square(), 1 - BETAS[1])
        size = (second / corrections[1]).sqrt_().add_(EPS)
        change = first / corrections[0] / size
        new |= {f"first.{name}": first, f"second.{name}": second}
        new[name] = model[name] * (1 - lr * weight_decay) - lr * change
    return new
