"""A multi-layer perceptron on (user, item) pairs that every client has its own copy of, trained for all clients at once.

The parameters of a client are one flat vector, so that a download, an upload or an average of networks is one tensor
[c, P]: for every layer its weights (a row per output), then its biases; the weights of the first layer come as the half
for the user vector, then the half for the item row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor


def xavier(n_in: int, n_out: int, generator: torch.Generator) -> Tensor:
    """Weights of one layer, flat: uniform in +-sqrt(6 / (fan in + fan out))."""
    bound = math.sqrt(6 / (n_in + n_out))
    return (2 * torch.rand(n_in * n_out, generator=generator) - 1) * bound


@dataclass(frozen=True)
class Tower:
    """ReLU layers of these widths on concat(user, item row); the first width is twice the embedding size."""

    widths: tuple[int, ...]

    @property
    def sizes(self) -> Sequence[int]:
        """Numbers per piece of the flat vector: two halves and biases, then weights and biases of each layer."""
        first, *others = ((n_in * n_out, n_out) for n_in, n_out in pairwise(self.widths))
        return [first[0] // 2, first[0] // 2, first[1], *(size for layer in others for size in layer)]

    @property
    def n_parameters(self) -> int:
        """Length of the flat vector."""
        return sum(self.sizes)

    def init(self, generator: torch.Generator) -> Tensor:
        """Xavier weights and zero biases, [P]."""
        layers: list[Tensor] = []
        for n_in, n_out in pairwise(self.widths):
            # Drawn as [out, in]; the first layer is stored in halves of its columns.
            weights = xavier(n_in, n_out, generator).view(n_out, n_in)
            halves = weights.chunk(2, dim=1) if not layers else (weights,)
            layers.append(torch.cat([*(half.flatten() for half in halves), torch.zeros(n_out)]))
        return torch.cat(layers)

    def __call__(self, theta: Tensor, user: Tensor, rows: Tensor) -> Tensor:
        """Last hidden units [c, b, k] of ``rows`` [c, b, d] for users [c, d] with networks ``theta`` [c, P]."""
        # One split (whose gradient is one concatenation) is cheaper than a slice per piece.
        of_user, of_item, bias, *others = torch.split(theta, list(self.sizes), dim=1)
        c, d = user.shape
        # W concat(p, q) = W_p p + W_q q: the user's half is the same for all samples of the client.
        start = torch.baddbmm(bias[:, None], user[:, None], of_user.reshape(c, -1, d).mT)
        units = torch.baddbmm(start, rows, of_item.reshape(c, -1, d).mT).relu()
        for weight, bias in zip(others[::2], others[1::2], strict=True):
            units = torch.baddbmm(bias[:, None], units, weight.reshape(c, bias.shape[1], -1).mT).relu()
        return units
