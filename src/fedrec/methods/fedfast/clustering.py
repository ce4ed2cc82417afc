"""k-means of vectors, all restarts at once."""

from __future__ import annotations

import torch
from torch import Tensor

from fedrec.sampling import streams


def random_starts(points: Tensor, k: int, restarts: int, key: Tensor) -> Tensor:
    """Centroids [restarts, k, d]: for each restart k different points, chosen by the stream ``key`` [1]."""
    keys = streams.child(key.cpu(), torch.arange(restarts))
    order = streams.bits(keys[:, None], torch.arange(len(points))).argsort(dim=1)
    return points[order[:, :k].to(points.device)]


def kmeans(points: Tensor, starts: Tensor, iterations: int) -> tuple[Tensor, Tensor]:
    """Lloyd's algorithm from ``starts`` [r, k, d] on ``points`` [n, d]: labels [n] and centroids [k, d] of the best restart.

    The best has the smallest sum of squared distances. A cluster that loses all its points keeps its centroid.
    """
    centroids = starts
    for _ in range(iterations):
        members = torch.nn.functional.one_hot(nearest(points, centroids)[0], starts.shape[1]).to(points.dtype)
        # A product instead of a scatter: the same bits every time, on a GPU too.
        sizes, sums = members.sum(1), members.mT @ points
        centroids = torch.where(sizes[..., None] > 0, sums / sizes.clamp(min=1)[..., None], centroids)
    labels, distances = nearest(points, centroids)
    best = distances.square().sum(1).argmin()
    return labels[best], centroids[best]


def nearest(points: Tensor, centroids: Tensor) -> tuple[Tensor, Tensor]:
    """Label of the nearest centroid and the distance to it, each [r, n], under every restart of ``centroids`` [r, k, d]."""
    distances, labels = torch.cdist(points.expand(len(centroids), -1, -1), centroids).min(dim=2)
    return labels, distances


def cluster_means(values: Tensor, labels: Tensor, k: int) -> Tensor:
    """Mean of ``values`` [s, d] per cluster, [k, d]; zero for a cluster without any."""
    members = torch.nn.functional.one_hot(labels, k).to(values.dtype)
    return (members.T @ values) / members.sum(0).clamp(min=1)[:, None]
