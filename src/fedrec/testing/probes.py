"""What the conformance suite looks at a method with: what an object holds, what a round uploads, uploads as if some had not taken part."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from fedrec.federation.arrows import Gathering
from fedrec.federation.payload import Part, State, Table, Upload


def frozen(value: Any) -> Any:
    """Everything an object holds, as something that can be compared later."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {key: frozen(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set):
        return [frozen(inner) for inner in value]
    return frozen(vars(value)) if hasattr(value, "__dict__") and not callable(value) else repr(value)


class Kept(Gathering):
    """Keeps a round's uploads."""

    def __init__(self) -> None:
        self.uploads: list[Upload] = []

    def add(self, upload: Upload) -> None:
        """Keep one that has something in it."""
        if upload.parts:
            self.uploads.append(upload)

    def step(self, server: State, round: int) -> State:
        """The server learns nothing."""
        return server


def emptied(part: Part, keep: torch.Tensor) -> Part:
    """The part as it were if clients that are not kept had changed nothing."""
    if isinstance(part, Table):
        assert part.known is not None
        return replace(part, value=part.known + _emptied_values(part.value - part.known, keep))
    assert isinstance(part, torch.Tensor)
    return _emptied_values(part, keep)


def _emptied_values(change: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    return change * keep.view(-1, *[1] * (change.dim() - 1))
