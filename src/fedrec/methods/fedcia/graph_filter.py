"""Graph filters on the interactions of a client: the linear part and the ideal low-pass part of GF-CF."""

from __future__ import annotations

import torch
from torch import Tensor


def normalised(interactions: Tensor) -> Tensor:
    """R~ = D_U^-1/2 R D_I^-1/2 of 0/1 interactions [c, users, m]; empty rows and columns stay 0."""
    users, items = interactions.sum(2, keepdim=True), interactions.sum(1, keepdim=True)
    return interactions / (users.clamp(min=1) * items.clamp(min=1)).sqrt()


def low_pass(matrix: Tensor, rank: int) -> Tensor:
    """The first ``rank`` right singular vectors of ``matrix`` [c, users, m], [c, min(rank, users), m].

    Those beyond the rank of a client's matrix are 0: the rows that a full decomposition adds there are arbitrary.
    """
    squares, left = torch.linalg.eigh(matrix @ matrix.mT)
    squares, left = squares.flip(1)[:, :rank], left.flip(2)[:, :, :rank]
    sound = squares > 1e-6 * squares[:, :1].clamp(min=1e-12)
    inverse = torch.where(sound, squares.clamp(min=1e-30).rsqrt(), 0)
    vectors: Tensor = inverse[:, :, None] * (left.mT @ matrix)
    return vectors
