"""A causal transformer over sequences of items, as functions of an item table and one flat vector of all other numbers.

Two or more pre-norm blocks as in SASRec (Kang and McAuley, ICDM 2018): attention to what came before, then a layer of four
times the width with GELU. Sequences begin at the left; positions are counted from their newest item, so that it has the
same position in training and in scoring. What is dropped is a function of seed, step, client and place in its sequence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, scaled_dot_product_attention

from fedrec.sampling import streams

WIDER = 4
"""Width of a block's inner layer, in widths of the embedding."""


@dataclass(frozen=True)
class Shape:
    """How large the network is, beside its item table."""

    dim: int
    layers: int
    heads: int
    length: int

    @property
    def sites(self) -> int:
        """Places where numbers of the width of an embedding are dropped: the embedding, and both halves of every block."""
        return 1 + 2 * self.layers

    def parts(self) -> dict[str, tuple[int, ...]]:
        """Every array of the flat vector, in its order."""
        d, found = self.dim, {"positions": (self.length, self.dim)}
        arrays = {
            "norm": (2, d), "mix": (d, 3 * d), "out": (d, d),
            "norm2": (2, d), "up": (d, WIDER * d), "up_bias": (WIDER * d,), "down": (WIDER * d, d), "down_bias": (d,),
        }  # fmt: skip
        shapes: dict[str, tuple[int, ...]] = dict(found)
        for layer in range(self.layers):
            shapes |= {f"{layer}.{name}": shape for name, shape in arrays.items()}
        return shapes | {"norm": (2, d)}

    @property
    def numbers(self) -> int:
        """Length of the flat vector."""
        return sum(math.prod(shape) for shape in self.parts().values())

    def initial(self, std: float, generator: torch.Generator) -> Tensor:
        """Matrices N(0, std^2), biases zero, norms the identity."""
        arrays = []
        for name, shape in self.parts().items():
            kind = name.rpartition(".")[2]
            if kind.startswith("norm"):
                arrays.append(torch.cat([torch.ones(shape[1]), torch.zeros(shape[1])]))
            elif kind.endswith("bias"):
                arrays.append(torch.zeros(shape))
            else:
                arrays.append(torch.randn(shape, generator=generator).flatten() * std)
        return torch.cat(arrays)

    def split(self, flat: Tensor) -> dict[str, Tensor]:
        """The arrays of a flat vector, as views."""
        shapes = self.parts()
        parts = torch.split(flat, [math.prod(shape) for shape in shapes.values()])
        return {name: part.view(shape) for part, (name, shape) in zip(parts, shapes.items(), strict=True)}


def hidden(
    shape: Shape, network: Mapping[str, Tensor], embedded: Tensor, lengths: Tensor, kept: Sequence[Tensor] = ()
) -> Tensor:
    """What the network makes of every place [c, W, d] of sequences ``embedded`` [c, W, d] of these lengths.

    ``kept`` has a factor for every number at every site, 0 where it is dropped; none when nothing is.
    """
    width = embedded.shape[1]
    place = torch.arange(width, device=embedded.device) + (shape.length - lengths)[:, None]
    drop = iter(kept)
    x = _dropped(embedded + network["positions"][place.clamp(max=shape.length - 1)], drop)
    for layer in range(shape.layers):
        part = {name: network[f"{layer}.{name}"] for name in ("norm", "mix", "out", "norm2", "up", "down")}
        x = x + _dropped(_attended(shape, _normed(x, part["norm"]) @ part["mix"]) @ part["out"], drop)
        inner = gelu(_normed(x, part["norm2"]) @ part["up"] + network[f"{layer}.up_bias"])
        x = x + _dropped(inner @ part["down"] + network[f"{layer}.down_bias"], drop)
    return _normed(x, network["norm"])


def _normed(x: Tensor, weights: Tensor) -> Tensor:
    return layer_norm(x, x.shape[-1:], weights[0], weights[1])


def _attended(shape: Shape, mixed: Tensor) -> Tensor:
    """Attention of every place to itself and what is before it; what is behind a sequence's end is seen by nothing before."""
    c, width, _ = mixed.shape
    query, key, value = (
        part.view(c, width, shape.heads, -1).transpose(1, 2) for part in torch.split(mixed, shape.dim, dim=2)
    )
    return scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).reshape(c, width, shape.dim)


def _dropped(x: Tensor, kept: object) -> Tensor:
    factor = next(kept, None)  # type: ignore[call-overload]
    return x if factor is None else x * factor


def dropout(shape: Shape, keys: Tensor, width: int, share: float) -> list[Tensor]:
    """Factors [c, width, d] for every site: 0 with probability ``share``, else 1 / (1 - share); ``keys`` [c] of streams."""
    if share == 0:
        return []
    words = -(-shape.sites * shape.dim // 4)  # four numbers of 16 bits from every hash
    index = torch.arange(width * words, device=keys.device)
    drawn = streams.bits(keys[:, None], index).view(len(keys), width, words).view(torch.int16)
    threshold = round(share * (1 << 16))
    factor = (drawn >= threshold - (1 << 15)).float().mul_((1 << 16) / ((1 << 16) - threshold))
    return list(torch.split(factor[..., : shape.sites * shape.dim], shape.dim, dim=2))
