"""Local differential privacy as a stage on the upload: clip the change, then add noise. Works with every method.

FedEM's way is Laplace noise on the upload with L1 clipping. A client's clipped changes differ by at
most twice the clip norm in the stage's norm, whatever its data, so one upload costs ``epsilon = 2 * clip / scale`` for
Laplace; for Gaussian noise the cost depends on delta. Costs over rounds come from an accounting library.

Noise protects from a server only as long as the server cannot compute it. So it does not follow from the run's seed, which
the server knows, but from a secret of every client, drawn from the operating system's randomness and kept with its private
state: a resumed run sends in a round what it sent there before, and no second noise to average with.
"""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import replace
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from pydantic import Field, field_validator
from torch import Tensor

from fedrec.errors import ConfigError
from fedrec.federation.payload import Payload, Table, change
from fedrec.federation.total import Total
from fedrec.sampling import streams
from fedrec.sampling.streams import Purpose
from fedrec.settings import Settings

MEANINGLESS = 50.0
"""Above this epsilon a guarantee bounds nothing anybody would call privacy."""
SECRET = 32
"""Bytes of a client's secret."""


class Privacy(Settings):
    """Settings of the stage."""

    mechanism: Literal["laplace", "gaussian"] = "laplace"
    clip: float | None = Field(1.0, gt=0)
    """Norm (L1 for Laplace, L2 for Gaussian) a client's change is clipped to; none: no clipping, no guarantee."""
    scale: float = Field(0.01, ge=0)
    """Scale of the Laplace noise, or standard deviation of the Gaussian noise, per uploaded number."""
    delta: float = Field(1e-5, gt=0, lt=1)
    """Failure probability at which the Gaussian mechanism's epsilon is stated."""
    reproducible: bool = False
    """Noise follows from the run's seed, so that a run can be repeated to the bit: for studies, and no guarantee."""

    @field_validator("clip", mode="before")
    @classmethod
    def _spelt_out(cls, value: object) -> object:
        """Files of settings have no word for None."""
        return None if value == "none" else value


class PrivacyStage:
    """Clips and noises what a cohort uploads; private state and scoring on the client stay as they are."""

    def __init__(self, settings: Privacy, seed: int) -> None:
        """Noise is a function of a client's secret and the round; if ``reproducible`` of ``seed``, client and round."""
        self.settings, self.seed = settings, seed
        self._secrets = torch.zeros(0, SECRET, dtype=torch.uint8)

    def prepare(self, clients: int) -> None:
        """Draw the secrets of so many clients that have none yet."""
        if (missing := clients - len(self._secrets)) > 0 and not self.settings.reproducible:
            drawn = np.frombuffer(os.urandom(missing * SECRET), np.uint8).reshape(missing, SECRET)
            self._secrets = torch.cat([self._secrets, torch.from_numpy(drawn.copy())])

    def meet(self, method: object, task: object) -> None:
        """Nothing of a method changes what this stage does."""

    def weights(self, weights: Tensor) -> Tensor:
        """The server knows them."""
        return weights

    def seal(self, total: Total, round: int) -> None:
        """Sums need no noise of their own."""

    def state(self) -> dict[str, Tensor]:
        """The clients' secrets, which a run that goes on needs; none if noise follows from the seed."""
        return {} if self.settings.reproducible else {"noise": self._secrets}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Go on with the secrets of earlier rounds."""
        if not self.settings.reproducible:
            self._secrets = state["noise"].cpu().clone()

    def apply(self, parts: Payload, clients: Tensor, round: int) -> Payload:
        """The upload after clipping and noise. Row updates become dense: noise on touched rows only would show which."""
        if not parts:  # these clients send nothing this round
            return parts
        changes = {name: change(part) for name, part in parts.items()}
        factor = self._clip_factor(changes)
        noised: Payload = {}
        for number, (name, part) in enumerate(parts.items()):
            new = changes[name]
            clipped = new * factor.view(-1, *[1] * (new.dim() - 1))
            noisy = clipped + self._noise(clients, round, number, clipped)
            if isinstance(part, Table):
                assert part.known is not None
                noised[name] = replace(part, value=part.known + noisy)
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

    def _noise(self, clients: Tensor, round: int, number: int, like: Tensor) -> Tensor:
        """Noise for part ``number`` of these clients' uploads, whose clipped changes are ``like``."""
        if self.settings.scale == 0:
            return torch.zeros_like(like)
        shape = streams.to_laplace if self.settings.mechanism == "laplace" else streams.to_normal
        count = like[0].numel()
        # One client at a time bounds the float64 temporaries when the client's table is large.
        step = max(1, (1 << 22) // max(1, count))
        blocks = [
            shape(streams.to_uniform(self._bits(some, round, number, values))).to(like)
            for some, values in zip(torch.split(clients, step), torch.split(like, step), strict=True)
        ]
        return torch.cat(blocks).view_as(like) * self.settings.scale

    def _bits(self, clients: Tensor, round: int, number: int, values: Tensor) -> Tensor:
        """Random bits [c, count] int64 that nobody but these clients can know, unless noise is to be reproducible.

        Other ``values`` in the same round get others: under the same noise the difference of two uploads would be bare.
        """
        count = values[0].numel()
        if self.settings.reproducible:
            keys = streams.child(streams.keys(self.seed, Purpose.NOISE, round, clients), number)
            return streams.bits(keys[:, None], torch.arange(count, device=clients.device))
        who = clients.cpu()
        self.prepare(int(who.max()) + 1 if len(who) else 0)
        # The hash of all other streams can be computed backwards: rows a client never touched would give its key away.
        place = round.to_bytes(8, "little") + number.to_bytes(8, "little")
        secrets = [secret.tobytes() for secret in self._secrets[who].numpy()]
        drawn = [
            hashlib.shake_128(secret + place + fingerprint(value)).digest(8 * count)
            for secret, value in zip(secrets, values, strict=True)
        ]
        return torch.frombuffer(bytearray(b"".join(drawn)), dtype=torch.int64).view(len(who), count)

    def epsilon(self, uploads: int) -> float | None:
        """Budget a client has spent after that many uploads; None where there is no guarantee."""
        if self.settings.clip is None or self.settings.scale == 0 or self.settings.reproducible:
            return None
        spent = _epsilon(self.settings, uploads) if uploads else 0.0
        return spent if math.isfinite(spent) else None

    def spends_delta(self, uploads: int) -> bool:
        """Whether the stated epsilon holds at ``delta`` only: always for Gaussian noise, for Laplace where that is smaller."""
        total = self.epsilon(uploads)
        if self.settings.mechanism == "gaussian" or total is None or self.settings.clip is None:
            return total is not None
        return total < uploads * 2 * self.settings.clip / self.settings.scale

    def words(self, uploads: int, rounds: int = 0) -> str:
        """The budget spent, for a progress line; it does not depend on how many rounds there were."""
        total = self.epsilon(uploads)
        if total is None:
            return "no privacy guarantee"
        return f"epsilon {total:.4g}" + (f" (delta {self.settings.delta:g})" if self.spends_delta(uploads) else "")

    def describe(self, uploads: int, notes: tuple[str, ...] = (), *, rounds: int = 0) -> dict[str, object]:
        """What goes into a result: settings, epsilon per upload and of the client with most uploads, and its worth in words.

        ``notes`` say what the stage changes in the method.
        """
        total, once = self.epsilon(uploads), self.epsilon(1)
        if self.settings.reproducible:
            verdict = "no guarantee: the noise follows from the run's seed, which the server knows (reproducible)"
        elif total is None or once is None:
            verdict = (
                "no guarantee: without clipping, or with next to no noise, an upload is not differentially private"
            )
        elif total > MEANINGLESS:
            verdict = f"no meaningful guarantee: epsilon {total:.4g} is above {MEANINGLESS:g}"
        else:
            verdict = f"each client's uploads are locally differentially private with {self.words(uploads)}"
        return self.settings.model_dump() | {
            "epsilon_per_round": once,
            "epsilon_total": total,
            "spends_delta": self.spends_delta(uploads),
            "most_uploads_of_a_client": uploads,
            "assumes": "the number of a client's training items is public",
            "verdict": verdict,
            "notes": list(notes),
        }


def fingerprint(value: Tensor) -> bytes:
    """32 bytes that stand for these numbers."""
    return hashlib.sha256(value.detach().cpu().contiguous().numpy().tobytes()).digest()


@lru_cache(maxsize=1024)
def _epsilon(settings: Privacy, rounds: int) -> float:
    """Composition over ``rounds`` uploads by the accounting library.

    One Laplace upload is pure (delta = 0). For many of them the library's privacy loss distribution, which spends delta,
    is often smaller than the plain sum; the smaller of both holds.
    """
    assert settings.clip is not None
    if settings.mechanism == "laplace":
        plain = rounds * 2 * settings.clip / settings.scale
        return min(plain, _laplace_epsilon(settings, rounds)) if rounds > 1 and plain <= 1000 else plain
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


def _laplace_epsilon(settings: Privacy, rounds: int) -> float:
    assert settings.clip is not None
    try:
        from dp_accounting.pld import privacy_loss_distribution as pld
    except ImportError:  # plain composition needs no library
        return float("inf")
    once = pld.from_laplace_mechanism(settings.scale, sensitivity=2 * settings.clip, value_discretization_interval=1e-3)
    return float(once.self_compose(rounds).get_epsilon_for_delta(settings.delta))
