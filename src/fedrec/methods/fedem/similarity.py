"""FedEM's aggregation: every client gets its own mean of the tables of similar clients (Eq. 13).

Weights of client u solve ``min_w sum_v (w_v - p_v)^2 + alpha (w_v - sigma_uv)^2`` on the simplex, where p is the data
weight and sigma the similarity. Completing the square makes this a projection of ``(p + alpha sigma_u)/(1 + alpha)``,
which sorting solves exactly: no solver, one matrix for all clients.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from fedrec.parts.centred import Products, centred_products, on_tensor_cores
from fedrec.parts.tables import inner_products

Kind = Literal["table", "pca1", "cosine"]
Distance = Literal["squared", "plain"]
Weights = Literal["scaled", "unscaled"]
Sign = Literal["fixed", "raw"]
COLUMNS = 1 << 12
"""Columns of flattened tables that are mixed at a time."""


def project_simplex(rows: Tensor) -> Tensor:
    """Euclidean projection of every row onto the probability simplex."""
    ordered = rows.sort(dim=1, descending=True).values
    excess = ordered.cumsum(1) - 1
    index = torch.arange(1, rows.shape[1] + 1, device=rows.device, dtype=rows.dtype)
    support = (ordered * index > excess).sum(1, keepdim=True)
    theta = excess.gather(1, support - 1) / support
    return (rows - theta).clamp(min=0)


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

    With ``sketch``, a size and a seed, distances of tables are those of random projections. ``products`` is about distances
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


def sketched(tables: Sequence[Tensor], size: int, seed: int) -> list[Tensor]:
    """Random projections [c, size] of the tables, less their mean: squared distances stay, up to a factor 1 +- sqrt(2 / size)."""
    width = tables[0][0].numel()
    generator = torch.Generator().manual_seed(seed)
    signs = torch.randint(0, 2, (width, size), generator=generator, dtype=torch.int8).to(tables[0]) * 2 - 1
    found = [block.flatten(1) @ signs / size**0.5 for block in tables]
    mean = torch.cat(found).mean(0)
    return [block - mean for block in found]


def mix_near(weights: Tensor, tables: Sequence[Tensor], neighbours: int) -> Tensor:
    """Personal tables [n, m, d] as ``mix``, but of each row of the weights only what deviates most from the mean row counts.

    Weights are the ``neighbours`` largest deviations from a row that all share, and that row times what is left to 1.
    """
    n, k = len(weights), min(neighbours, weights.shape[1])
    common = weights.mean(0)
    apart = weights - common
    columns = apart.abs().topk(k, dim=1).indices.sort(1).values
    kept = apart.gather(1, columns)
    rest = 1 - kept.sum(1, keepdim=True)  # so that weights sum to 1
    starts = torch.arange(0, n * k + 1, k, device=weights.device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says once that this layout is young
        sparse = torch.sparse_csr_tensor(starts, columns.flatten(), kept.flatten(), weights.shape)
    out = tables[0].new_empty(n, *tables[0].shape[1:])
    flat = out.flatten(1)
    for first in range(0, flat.shape[1], COLUMNS):
        part = torch.cat([block.flatten(1)[:, first : first + COLUMNS] for block in tables])
        flat[:, first : first + COLUMNS] = sparse @ part + rest * (common @ part)
    return out
