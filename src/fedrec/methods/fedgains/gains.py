"""Gains: how much each of several rankings counts for a client, learned from what it had last.

An item's score is the sum of -log(rank) over rankings, each times a gain, so the model of the next item is a product of power laws of
ranks. A client's gains are the most likely ones for its newest items, each one picked among all items it did not have before, where
gains are normally distributed over clients around a shared mean (empirical Bayes).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

LONGEST = 1.0
"""Of a Newton step; the likelihood is flat far from its maximum."""
NEWTON = 3
LEAST = 1e-6
"""By which a likelihood bends at least, so that there is a step where nobody picked anything."""


def log_ranks(scores: Tensor) -> Tensor:
    """-log(rank) of every item of [c, m], 1 for the largest score; equal scores share their mean rank."""
    ordered, items = scores.sort(dim=1, descending=True)
    changes = ordered[:, 1:] != ordered[:, :-1]
    edge = torch.ones_like(ordered[:, :1], dtype=torch.bool)
    place = torch.arange(1, scores.shape[1] + 1, device=scores.device, dtype=torch.float32).expand_as(scores)
    first = place.where(torch.cat([edge, changes], 1), 0).cummax(1).values
    last = place.where(torch.cat([changes, edge], 1), torch.inf).flip(1).cummin(1).values.flip(1)
    return torch.empty_like(place).scatter_(1, items, -((first + last) / 2).log())


def newton(slope: Tensor, bent: Tensor) -> Tensor:
    """The step towards a maximum from the slope [..., F] there and minus the second derivatives [..., F, F]."""
    eye = torch.eye(slope.shape[-1], dtype=bent.dtype, device=bent.device)
    step: Tensor = torch.linalg.solve(bent + LEAST * eye, slope)
    return step.mul_((LONGEST / step.norm(dim=-1, keepdim=True).clamp(min=1e-12)).clamp(max=1))


@dataclass(frozen=True)
class Picks:
    """What clients picked, one after the other, and what they could have picked."""

    features: Tensor  # [c, k, m, F]
    open: Tensor  # [c, k, m] bool: items that it did not have yet
    items: Tensor  # [c, k] int64
    valid: Tensor  # [c, k] bool

    def likelihood(self, gains: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of these gains [c, F]: the logarithm [c], its gradient [c, F] and minus its second derivatives [c, F, F]."""
        c, k, m, f = self.features.shape
        logits = (self.features.view(c, k * m, f) @ gains[:, :, None]).view(c, k, m)
        logits = logits.masked_fill_(~self.open, -torch.inf)
        whole = logits.logsumexp(2)
        share = logits.sub_(whole[:, :, None]).exp_().view(c * k, m, 1)
        rows = self.features.view(c * k, m, f)
        picked = self.features.gather(2, self.items[:, :, None, None].expand(c, k, 1, f))[:, :, 0]
        weighted = rows * share
        mean = weighted.sum(1)
        bent = (weighted.mT @ rows - mean[:, :, None] * mean[:, None, :]).view(c, k, f, f)
        real = self.valid[:, :, None]
        value = ((picked * gains[:, None, :]).sum(2) - whole) * self.valid
        return value.sum(1), ((picked - mean.view(c, k, f)) * real).sum(1), (bent * real[..., None]).sum(1)

    def fitted(self, mean: Tensor, spread: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Most likely gains [c, F] where they are N(mean, spread), their covariance [c, F, F], and the log-likelihood [c] before the last step.

        Without any picks they are the mean.
        """
        precision, gains = torch.linalg.inv(spread), mean.expand(len(self.items), -1)
        for _ in range(NEWTON):
            value, slope, bent = self.likelihood(gains.float())
            bent = bent.double() + precision
            gains = gains + newton(slope.double() - (gains - mean) @ precision, bent)
        return gains, torch.linalg.inv(bent), value
