"""A multi-layer perceptron that every client has its own copy of, run and trained for all clients at once.

The parameters of a client are one flat vector, so that a download, an upload or a mean of networks is one tensor
[c, P]: for every layer its weights (a row per output), then its biases.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from fedrec.sampling import streams


def xavier(n_in: int, n_out: int) -> float:
    """Glorot's bound of uniform weights."""
    return math.sqrt(6 / (n_in + n_out))


def kaiming(n_in: int, n_out: int) -> float:
    """He's bound of uniform weights."""
    return math.sqrt(6 / n_in)


def uniform(count: int, bound: float, generator: torch.Generator) -> Tensor:
    """``count`` numbers uniform in +-bound."""
    return (2 * torch.rand(count, generator=generator) - 1) * bound


@dataclass(frozen=True)
class FlatMLP:
    """Layers of these widths, inputs first, with ReLU between them; no layers at all with less than two widths."""

    widths: tuple[int, ...]

    @property
    def size(self) -> int:
        """Length P of the flat vector."""
        return sum(n_out * (n_in + 1) for n_in, n_out in pairwise(self.widths))

    def layers(self, theta: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Views of theta [c, P], layer by layer: weights [c, out, in] and biases [c, out]."""
        sizes = [size for n_in, n_out in pairwise(self.widths) for size in (n_in * n_out, n_out)]
        # One split (whose gradient is one concatenation) is cheaper than a slice per piece.
        pieces = torch.split(theta, sizes, dim=1)
        shapes = zip(pieces[::2], pieces[1::2], pairwise(self.widths), strict=True)
        return [(weight.reshape(len(theta), n_out, n_in), bias) for weight, bias, (n_in, n_out) in shapes]

    def __call__(self, theta: Tensor, inputs: Tensor) -> Tensor:
        """Outputs [c, b, out] of ``inputs`` [c, b, in], before any activation, of the networks ``theta`` [c, P]."""
        units = inputs
        for depth, (weight, bias) in enumerate(self.layers(theta)):
            units = torch.baddbmm(bias[:, None], units.relu() if depth else units, weight.mT)
        return units

    def paired(self, theta: Tensor, own: Tensor, rows: Tensor) -> Tensor:
        """The same for concat(own, row): one vector ``own`` [c, a] per client beside each of its ``rows`` [c, b, d]."""
        (weight, bias), *rest = self.layers(theta)
        # W concat(p, q) = W_p p + W_q q: the client's part is the same for all its rows.
        of_own, of_row = torch.split(weight, [own.shape[1], rows.shape[2]], dim=2)
        start = torch.baddbmm(bias[:, None], own[:, None], of_own.mT)
        units = torch.baddbmm(start, rows, of_row.mT)
        for weight, bias in rest:
            units = torch.baddbmm(bias[:, None], units.relu(), weight.mT)
        return units

    def draw(self, bound: Callable[[int, int], float], generator: torch.Generator) -> Tensor:
        """Weights uniform within ``bound(fan in, fan out)`` and zero biases, [P], drawn on the CPU."""
        parts = [torch.zeros(0)]
        for n_in, n_out in pairwise(self.widths):
            parts += [uniform(n_in * n_out, bound(n_in, n_out), generator), torch.zeros(n_out)]
        return torch.cat(parts)

    def draw_each(self, keys: Tensor) -> Tensor:
        """One network per key of ``streams.keys``, weights and biases uniform in +-1/sqrt(fan in): [len(keys), P].

        For one draw that all clients share pass one key and repeat the result.
        """
        index = torch.arange(self.size, device=keys.device)
        fan_in = torch.cat([torch.full((n_out * (n_in + 1),), n_in) for n_in, n_out in pairwise(self.widths)])
        bound = fan_in.to(keys.device).double().rsqrt()
        return ((2 * streams.uniform(keys[:, None], index) - 1) * bound).float()
