"""Whether a saved state is one that a trainer can continue from: the same names, shapes and types."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

KEPT_IN_HALF = (torch.float16, torch.float32)
"""A run may have kept its item tables in half precision; whoever reads its model has them in full."""


class StateMismatchError(Exception):
    """A saved state that belongs to something else; its text says where they differ."""


def check_state(own: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> None:
    """Raise unless ``found`` could be the state of whoever has ``own``."""
    if missing := own.keys() - found.keys():
        raise StateMismatchError(f"{min(missing)} is missing")
    if extra := found.keys() - own.keys():
        raise StateMismatchError(f"{min(extra)} does not belong there")
    for name, tensor in own.items():
        same = found[name].dtype == tensor.dtype or (found[name].dtype, tensor.dtype) == KEPT_IN_HALF
        if not same or not _fits(found[name].shape, tensor.shape):
            raise StateMismatchError(f"{name} is {_form(found[name])}, not {_form(tensor)}")


def _fits(found: tuple[int, ...], own: tuple[int, ...]) -> bool:
    """Equal shapes; a dimension of nothing yet may have grown, such as tables of the clients that were drawn."""
    return len(found) == len(own) and all(theirs == mine or mine == 0 for theirs, mine in zip(found, own, strict=True))


def _form(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
