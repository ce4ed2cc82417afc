"""FedEM's aggregation: every client gets its own mean of the tables of similar clients (Eq. 13).

Weights of client u solve ``min_w sum_v (w_v - p_v)^2 + alpha (w_v - sigma_uv)^2`` on the simplex, where p is the data
weight and sigma the similarity. Completing the square makes this a projection of ``(p + alpha sigma_u)/(1 + alpha)``,
which has an exact solution: no solver, one matrix for all clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from fedrec.methods.fedem.approximate import sketched
from fedrec.parts.centred import Products, centred_products, on_tensor_cores
from fedrec.parts.tables import inner_products

Kind = Literal["table", "pca1", "cosine"]
Distance = Literal["squared", "plain"]
Weights = Literal["scaled", "unscaled"]
Sign = Literal["fixed", "raw"]
BLOCK = 1 << 20
"""Weights that are projected at a time."""


def project_simplex(rows: Tensor) -> Tensor:
    """Euclidean projection of every row onto the probability simplex.

    What is not above the threshold that the others ask for leaves, until nothing does; sorting would take longer.
    """
    out = torch.empty_like(rows)
    at_once = max(1, BLOCK // max(1, rows.shape[1]))
    for part, into in zip(torch.split(rows, at_once), torch.split(out, at_once), strict=True):
        kept = torch.ones_like(part, dtype=torch.bool)
        left = kept.sum(1, keepdim=True)
        while True:
            threshold = (part.where(kept, 0).sum(1, keepdim=True) - 1) / left
            kept &= part > threshold
            before, left = left, kept.sum(1, keepdim=True)
            if torch.equal(before, left):
                break
        torch.sub(part, threshold, out=into).clamp_(min=0)
    return out


def simplex_weights(similarity: Tensor, share: Tensor, alpha: float, form: Weights) -> Tensor:
    """Weights W [n, n] of Eq. 13; ``unscaled`` is the released code's variant, which leans more on similarity."""
    target = share + alpha * similarity
    if form == "scaled":
        return project_simplex(target / (1 + alpha))
    weights = project_simplex(target)
    weights = weights.where(weights >= 1e-20, 0)
    return weights / weights.sum(1, keepdim=True)


def principal_scores(table: Tensor, sign: Sign = "fixed") -> Tensor:
    """Scores [c, m] of a table's rows on its first principal component.

    The sign of a component is arbitrary; ``fixed`` makes its largest entry positive, so that like tables stay alike.
    """
    centred = table - table.mean(1, keepdim=True)
    _, vectors = torch.linalg.eigh(centred.mT @ centred)
    first = vectors[:, :, -1]
    if sign == "fixed":
        largest = first.gather(1, first.abs().argmax(1, keepdim=True))
        first = first * largest.sign()
    scores: Tensor = (centred @ first.unsqueeze(2)).squeeze(2)
    return scores


def similarities(
    tables: Sequence[Tensor],
    kind: Kind,
    distance: Distance,
    *,
    snap: float | None,
    sign: Sign = "fixed",
    sketch: tuple[int, int] | None = None,
    products: Products = "float32",
) -> Tensor:
    """Similarity [n, n] of clients whose tables [c, m, d] come cohort by cohort; values above ``snap`` become 1.

    With ``sketch``, a size and a seed, distances of tables are those of sketches. ``products`` is about distances
    of whole tables on a GPU.
    """
    if kind == "table":
        blocks = [t.flatten(1) for t in tables] if sketch is None else sketched(tables, *sketch)
    else:
        blocks = [principal_scores(t, sign) for t in tables]
    rough = kind == "table" and sketch is None and on_tensor_cores(products, blocks)
    inner = centred_products(blocks) if rough else inner_products(blocks)
    norms = inner.diagonal().clone()
    if kind == "cosine":
        length = norms.clamp(min=1e-30).sqrt()
        return (inner / length[:, None] / length).clamp(min=0).fill_diagonal_(1)
    apart = (norms[:, None] + norms - 2 * inner).clamp(min=0)
    similarity = 1 / (1 + (apart if distance == "squared" else apart.sqrt()))
    similarity.fill_diagonal_(1)
    return similarity if snap is None else torch.where(similarity > snap, 1, similarity)
