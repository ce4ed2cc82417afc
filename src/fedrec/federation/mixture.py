"""What the item tables of clients that merge are made of."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


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
