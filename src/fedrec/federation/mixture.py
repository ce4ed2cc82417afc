"""What the item tables of clients that merge are made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedrec.federation.peers import Peers


@dataclass(frozen=True, eq=False)
class Mixture:
    """Item tables of clients that merge what they download with what they have: ``own + share * (server - own)``."""

    own: Tensor
    """[c, m, d]: the clients' own tables."""
    server: Tensor
    """[c, m, d]: the tables they download."""
    share: Tensor
    """[c, m]: of each row, what comes from the server."""

    @property
    def merged(self) -> Tensor:
        """[c, m, d]: the tables the clients go on with."""
        return torch.lerp(self.own, self.server, self.share[:, :, None])


BINS = 1000


def describe_shares(mixtures: Iterable[Mixture], peers: Peers | None = None) -> dict[str, Any]:
    """How much of the rows of clients' tables came from the server, over all rows of the clients that have a download.

    ``clients`` counts those, ``mean`` is exact, and ``quantiles`` are right to a thousandth. ``peers`` have the mixtures of
    other clients.
    """
    found = torch.zeros(BINS + 3, dtype=torch.float64)
    for mixture in mixtures:
        share = mixture.share[mixture.share.amax(1) > 0] if mixture.share.numel() else mixture.share
        found[BINS:] += torch.tensor([len(share), share.numel(), float(share.double().sum())], dtype=torch.float64)
        found[:BINS] += torch.histc(share.float(), BINS, 0, 1).double().cpu()
    if peers is not None:
        peers.add(found)
    counts, (clients, rows, total) = found[:BINS], found[BINS:].tolist()
    if not rows:
        return {"clients": 0}
    reached = counts.cumsum(0) / rows
    at = {f"{q:g}": (int((reached < q - 1e-12).sum()) + 0.5) / BINS for q in (0.05, 0.25, 0.5, 0.75, 0.95)}
    return {"clients": int(clients), "mean": total / rows, "quantiles": at}
