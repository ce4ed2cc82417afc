"""Local differential privacy as a stage on the upload: clip the change, then add noise. Works with every method.

FedEM's LDP (section 7 of its card): Laplace noise on the upload, L1 clipping. A client's clipped changes differ by at
most twice the clip norm in the stage's norm, whatever its data, so one upload costs ``epsilon = 2 * clip / scale`` for
Laplace; for Gaussian noise the cost depends on delta. Costs over rounds come from an accounting library.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from fedrec.errors import ConfigError
from fedrec.federation.payload import Part, Payload, RowUpdate, Table
from fedrec.sampling import streams
from fedrec.sampling.streams import Purpose

MEANINGLESS = 50.0
"""Above this epsilon a guarantee bounds nothing anybody would call privacy."""


class Privacy(BaseModel):
    """Settings of the stage."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mechanism: Literal["laplace", "gaussian"] = "laplace"
    clip: float | None = Field(1.0, gt=0)
    """Norm (L1 for Laplace, L2 for Gaussian) a client's change is clipped to; None: no clipping, no guarantee."""
    scale: float = Field(0.01, ge=0)
    """Scale of the Laplace noise, or standard deviation of the Gaussian noise, per uploaded number."""
    delta: float = Field(1e-5, gt=0, lt=1)
    """Failure probability at which the Gaussian mechanism's epsilon is stated."""


class PrivacyStage:
    """Clips and noises what a cohort uploads; private state and scoring on the client stay as they are."""

    def __init__(self, settings: Privacy, seed: int) -> None:
        """Noise is a function of ``seed``, round and client, like all randomness here."""
        self.settings, self.seed = settings, seed

    def apply(self, parts: Payload, clients: Tensor, round: int) -> Payload:
        """The upload after clipping and noise. Row updates become dense: noise on touched rows only would show which."""
        if not parts:  # these clients send nothing this round
            return parts
        changes = {name: _change(part) for name, part in parts.items()}
        factor = self._clip_factor(changes)
        keys = streams.keys(self.seed, Purpose.NOISE, round, clients)
        noised: Payload = {}
        for number, (name, part) in enumerate(parts.items()):
            change = changes[name]
            clipped = change * factor.view(-1, *[1] * (change.dim() - 1))
            noisy = clipped + self._noise(streams.child(keys, number), change)
            if isinstance(part, Table):
                noised[name] = replace(part, value=part.value - change + noisy, update=None)
            else:
                noised[name] = noisy
        return noised

    def _clip_factor(self, changes: dict[str, Tensor]) -> Tensor:
        flat = [change.flatten(1).double() for change in changes.values()]
        if self.settings.mechanism == "laplace":
            norm = sum((x.abs().sum(1) for x in flat), torch.zeros(()))
        else:
            norm = sum(((x * x).sum(1) for x in flat), torch.zeros(())).sqrt()
        clip = self.settings.clip
        limit = torch.ones_like(norm) if clip is None else (clip / norm.clamp(min=1e-30)).clamp(max=1)
        return limit.to(flat[0].device, torch.float32)

    def _noise(self, keys: Tensor, like: Tensor) -> Tensor:
        if self.settings.scale == 0:
            return torch.zeros_like(like)
        draw = streams.laplace if self.settings.mechanism == "laplace" else streams.normal
        index = torch.arange(like[0].numel(), device=like.device)
        # One client at a time bounds the float64 temporaries when the client's table is large.
        step = max(1, (1 << 22) // max(1, len(index)))
        blocks = [draw(part[:, None], index).to(like.dtype) for part in torch.split(keys, step)]
        return torch.cat(blocks).view_as(like) * self.settings.scale

    def epsilon(self, rounds: int) -> float | None:
        """Budget a client has spent after that many uploads; None where there is no guarantee."""
        if self.settings.clip is None or self.settings.scale == 0:
            return None
        return _epsilon(self.settings, rounds) if rounds else 0.0

    def describe(self, rounds: int) -> dict[str, object]:
        """What goes into a result: settings, epsilon per round and in all, and what it is worth in words."""
        total, once = self.epsilon(rounds), self.epsilon(1)
        if total is None or once is None:
            verdict = "no guarantee: without clipping and noise an upload is not differentially private"
        elif total > MEANINGLESS:
            verdict = f"no meaningful guarantee: epsilon {total:.4g} is above {MEANINGLESS:g}"
        else:
            verdict = f"each client's uploads are epsilon {total:.4g} locally differentially private"
        return self.settings.model_dump() | {
            "epsilon_per_round": once,
            "epsilon_total": total,
            "uploads_per_client": rounds,
            "verdict": verdict,
        }


def _change(part: Part) -> Tensor:
    if isinstance(part, RowUpdate):
        return part.dense()
    if isinstance(part, Table):
        if part.update is None:
            raise ConfigError("this method uploads a table without its change, so its upload cannot be clipped.")
        return part.update.dense()
    return part


@lru_cache(maxsize=1024)
def _epsilon(settings: Privacy, rounds: int) -> float:
    """Composition over ``rounds`` uploads by the accounting library (privacy loss distributions for Gaussian noise)."""
    assert settings.clip is not None
    if settings.mechanism == "laplace":
        return rounds * 2 * settings.clip / settings.scale
    try:
        import dp_accounting
        from dp_accounting import rdp
    except ImportError:
        raise ConfigError(
            "accounting for Gaussian noise needs the extra 'privacy': pip install 'fedrec[privacy]'."
        ) from None
    event = dp_accounting.GaussianDpEvent(settings.scale / (2 * settings.clip))
    accountant = rdp.RdpAccountant()
    accountant.compose(event, rounds)
    return float(accountant.get_epsilon(settings.delta))
