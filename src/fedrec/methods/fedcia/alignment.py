"""Item-item similarity G = mean of E E' over clients, and aligning a client's table E with it: no m x m matrix per client.

With G = V diag(l) V', a step on the distance of E E' to G is E <- E M + rate G E with a d x d matrix M. So E stays of the
form E W + V Y, and it is enough to follow X = V'E [k, d], where G is diagonal, and W [d, d]: a step costs k d^2 instead
of m^2 d, and nothing is approximated beyond the choice of k (k = m: nothing at all).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Distance = Literal["norm", "mse"]

ALIGNED = 1e-6
"""Relative size of ||E E' - G||^2 below which a client agrees with G and rests: the norm has no gradient at 0."""
CACHED = {"cpu": 1 << 18, "cuda": 1 << 26}
"""Numbers of X = V'E that are worked on at a time."""


def gram_product(tables: Tensor, test: Tensor | None) -> Tensor:
    """Sum of E E' over the tables [c, m, d] of a cohort, [m, m]; with a ``test`` matrix [m, s] its product with it, [m, s].

    Eigenpairs of a mean come from such a product by the Nystrom method: exact if the mean has rank below s, else close
    for the large eigenvalues. ``test`` should be orthonormal.
    """
    other, axes = (tables, ([0, 2], [0, 2])) if test is None else (tables.mT @ test, ([0, 2], [0, 1]))
    product: Tensor = torch.tensordot(tables, other, axes)
    return product


def eigenpairs(mean: Tensor, test: Tensor | None, rank: int, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Vectors [m, k] and values [k], largest first, of a mean of ``gram_product``; ``noise`` [m, m] is added to a whole one."""
    if test is None:
        mean = mean if noise is None else mean + noise
        values, vectors = torch.linalg.eigh((mean + mean.T) / 2)
        order = values.abs().argsort(descending=True)
        values, vectors = values[order], vectors[:, order]
    else:
        values, vectors = _nystrom(mean, test.double())
    return vectors[:, :rank].float().contiguous(), values[:rank].float()


def _nystrom(product: Tensor, test: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and vectors of a positive G from ``product`` = G test: those of product (test' product)^-1 product'."""
    core = test.T @ product
    inner, basis = torch.linalg.eigh((core + core.T) / 2)
    # Directions that rounding alone could explain are left out; their inverse would blow it up.
    sound = inner > 1e-6 * inner[-1]
    root = product @ basis * torch.where(sound, inner.clamp(min=1e-30).rsqrt(), 0)
    vectors, singular, _ = torch.linalg.svd(root, full_matrices=False)
    return singular.square(), vectors


def residual(gram: Tensor, overlap: Tensor, norm: Tensor) -> Tensor:
    """||E E' - G||_F^2 = ||E'E||^2 - 2 tr(E'GE) + ||G||^2 from E'E [c, d, d], tr(E'GE) [c] and ||G||^2."""
    return gram.double().square().sum((1, 2)) - 2 * overlap.double() + norm


def alignment(
    tables: Tensor,
    vectors: Tensor,
    values: Tensor,
    *,
    steps: int,
    lr: float,
    weight_decay: float = 0.0,
    distance: Distance = "norm",
) -> tuple[Tensor, Tensor]:
    """Gradient steps of ``tables`` [c, m, d] on ||E E' - G||_F, or on its square / m^2: W [c, d, d], Y [c, k, d].

    The aligned tables are ``tables @ W + vectors @ Y``, for G = vectors diag(values) vectors'. The gradient of the norm
    is 2 R E / ||R|| with R E = E (E'E) - G E; that of the square is 4 R E.
    """
    # Clients that fit the cache together, or fill a GPU, make all their steps before the next ones start.
    together = max(1, CACHED[tables.device.type] // (vectors.shape[1] * tables.shape[2]))
    parts = [_align(part, vectors, values, steps, lr, weight_decay, distance) for part in torch.split(tables, together)]
    return torch.cat([w for w, _ in parts]), torch.cat([y for _, y in parts])


def _align(
    tables: Tensor, vectors: Tensor, values: Tensor, steps: int, lr: float, weight_decay: float, distance: Distance
) -> tuple[Tensor, Tensor]:
    c, m, d = tables.shape
    x = first = vectors.T @ tables
    outside = tables.mT @ tables - x.mT @ x  # E'E of the part of E that G does not see
    norm = values.double().square().sum()
    identity = torch.eye(d, device=tables.device)
    w = identity.expand(c, d, d)
    for _ in range(steps):
        gram = x.mT @ x + w.mT @ outside @ w
        pulled = values[:, None] * x
        squared = residual(gram, (x * pulled).sum((1, 2)), norm)
        apart = squared > ALIGNED * norm
        speed = 2 / squared.clamp(min=1e-30).sqrt() if distance == "norm" else torch.full_like(squared, 4 / m**2)
        rate = torch.where(apart, lr * speed, 0).float()[:, None, None]
        keep = (1 - lr * weight_decay * apart.float())[:, None, None]
        move = keep * identity - rate * gram
        x = torch.baddbmm(pulled.mul_(rate), x, move)
        w = w @ move
    return w, x - first @ w
