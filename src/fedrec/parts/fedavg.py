"""FedAvg of parameters that every client trains, such as a scoring network: their mean over the clients of a round."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import torch
from torch import Tensor

from fedrec.federation.payload import Upload, tensor

NetworkRule = Literal["size", "uniform"]
"""Weights n_k / sum n, or the same weight for everybody."""


class FedAvg:
    """Averages one named part of the uploads while something else consumes them."""

    def __init__(self, start: Tensor, name: str, rule: NetworkRule = "size") -> None:
        """``start`` is the server's value, of which the uploads hold changes."""
        self.start, self.name, self.rule = start, name, rule
        self.total = torch.zeros_like(start)
        self.weight = torch.zeros((), dtype=start.dtype, device=start.device)

    def passing(self, uploads: Iterable[Upload]) -> Iterator[Upload]:
        """The same uploads, each added to the mean on its way."""
        for upload in uploads:
            share = upload.weights if self.rule == "size" else torch.ones_like(upload.weights)
            self.total += torch.tensordot(share, tensor(upload.parts, self.name), dims=1)
            self.weight += share.sum()
            yield upload

    @property
    def value(self) -> Tensor:
        """The mean; the start where nobody sent anything."""
        return self.start + self.total / self.weight.clamp(min=1)
