"""Central differential privacy: clients clip what they send, and noise goes on the sum before the server sees it.

A client's upload is clipped to an L2 norm, and all weigh the same, so nobody moves a sum by more than that norm. The places that
add up (a site, or a whole simulation) each add a share of the noise, from a secret of their own; with secure aggregation
the server never sees a sum without all of it. The unit is a user: all a client ever sends, over all rounds.
"""

from __future__ import annotations

import hashlib
import os
import struct
from dataclasses import replace
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from fedrec.federation.accounting import Sampling, gaussian_epsilon, gaussian_noise, sampled_epsilon, sampled_noise
from fedrec.federation.payload import Payload, Table, change
from fedrec.federation.privacy import MEANINGLESS, SECRET, fingerprint
from fedrec.federation.task import Task
from fedrec.federation.total import Total
from fedrec.sampling import streams
from fedrec.sampling.streams import Purpose
from fedrec.settings import Settings

BLOCK = 1 << 22
"""Numbers whose noise is made at a time."""


class Sending(Protocol):
    """What of a method the stage looks at."""

    draws_participants: ClassVar[bool]

    @property
    def participation(self) -> float:
        """Share of clients that train in a round."""
        ...

    def blocks(self, task: Task) -> int:
        """How many times the arrows run in what a run calls a round."""
        ...

    def server_state(self, task: Task) -> dict[str, Tensor]:
        """Initial state of the server."""
        ...

    def participants(self, task: Task, server: dict[str, Tensor], round: int) -> Tensor:
        """Who trains."""
        ...

    def sum_bounds(self) -> dict[str, float] | None:
        """What a client adds at most to each sum, in L2 norm, where the method sees to that itself."""
        ...

    def public_sum(self, name: str) -> bool:
        """Whether a sum says only who took part."""
        ...


class CentralPrivacy(Settings):
    """Settings of noise on sums. Either ``epsilon`` is given, and the noise follows from it, or ``noise``."""

    mechanism: Literal["central"] = "central"
    clip: float = Field(1.0, gt=0)
    """L2 norm a client's upload is clipped to."""
    epsilon: float | None = Field(None, gt=0)
    """Budget of a client over the whole run, to which the noise is calibrated."""
    noise: float | None = Field(None, ge=0)
    """Standard deviation of the noise on a sum, in multiples of ``clip``."""
    delta: float = Field(1e-5, gt=0, lt=1)
    """Failure probability at which epsilon holds."""
    observer: Literal["server", "outsider"] = "server"
    """Against whom epsilon is stated: the server, which knows who takes part in a round, or somebody who sees all its models but
    not who took part."""
    reproducible: bool = False
    """Noise follows from the run's seed, so that a run can be repeated to the bit: for studies, and no guarantee."""

    @model_validator(mode="after")
    def _says_how_much(self) -> CentralPrivacy:
        if self.epsilon is None and self.noise is None:
            raise ValueError("give epsilon, to which the noise is calibrated, or the noise itself")
        return self


class CentralStage:
    """Clips what a cohort uploads, and adds this place's share of the noise to what was added up here."""

    def __init__(self, settings: CentralPrivacy, seed: int, share: float = 1.0) -> None:
        """``share`` of the variance is added here: all of it where everybody is in one place."""
        self.settings, self.seed, self.share = settings, seed, share
        self._secret = torch.zeros(0, SECRET, dtype=torch.uint8)
        self._sampling: Sampling | None = None
        self._bounds: dict[str, float] | None = None
        self._public: Any = lambda name: False

    def meet(self, method: Sending, task: Task) -> None:
        """Learn how a method draws participants, and which of its sums say only who took part."""
        self._sampling, self._bounds, self._public = _sampling(method, task), method.sum_bounds(), method.public_sum

    def prepare(self, clients: int) -> None:
        """Draw this place's secret, if it has none yet."""
        if not len(self._secret) and not self.settings.reproducible:
            self._secret = torch.from_numpy(np.frombuffer(os.urandom(SECRET), np.uint8).copy())[None]

    def state(self) -> dict[str, Tensor]:
        """The secret, which a run that goes on needs: a round that is repeated brings the same noise."""
        return {} if self.settings.reproducible else {"noise": self._secret}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Go on with the secret of earlier rounds."""
        if not self.settings.reproducible:
            self._secret = state["noise"].cpu().clone()

    def weights(self, weights: Tensor) -> Tensor:
        """Everybody weighs the same: otherwise the sum would move by more than the clipping norm."""
        return torch.ones_like(weights)

    def apply(self, parts: Payload, clients: Tensor, round: int) -> Payload:
        """The upload, clipped; rows become dense, so that how many clients touched one is no part of any sum."""
        if self._bounds is not None:  # the method bounds what a client adds itself
            return parts
        changes = {name: change(part) for name, part in parts.items()}
        if not changes:
            return parts
        square = sum((x.flatten(1).double().square().sum(1) for x in changes.values()), torch.zeros(()))
        factor = (self.settings.clip / square.sqrt().clamp(min=1e-30)).clamp(max=1).float()
        clipped: Payload = {}
        for name, part in parts.items():
            new = changes[name] * factor.view(-1, *[1] * (changes[name].dim() - 1))
            clipped[name] = _moved(part, new) if isinstance(part, Table) else new
        return clipped

    def seal(self, total: Total, round: int) -> None:
        """Add this place's share of the noise to all sums but those that say only who took part."""
        for name in sorted(total):
            if self._public(name):
                continue
            bound = self.settings.clip if self._bounds is None else self._bounds[name]
            std = (self.settings.noise or 0.0) * bound * self.share**0.5
            noise = self._noise(name, round, total[name], std).view_as(total[name]) * std
            # Whole numbers stay whole: what is rounded after noise is as private as before.
            total.add(name, (noise if total[name].is_floating_point() else noise.round()).to(total[name]))

    def _noise(self, name: str, round: int, value: Tensor, std: float) -> Tensor:
        """Standard normal numbers for a sum of a round, which nobody but this place can know.

        Another sum of the same round, as after an interruption it went on differently from, gets others: under the same ones
        the difference of both would be bare.
        """
        count, place = value.numel(), round.to_bytes(8, "little") + name.encode()
        if self.settings.reproducible:
            key = streams.keys(self.seed, Purpose.NOISE, round, torch.zeros(1, dtype=torch.int64))
            key = streams.child(key, int.from_bytes(hashlib.sha256(place).digest()[:4], "little"))
            return streams.normal(key, torch.arange(count))
        self.prepare(0)
        place += fingerprint(value) + struct.pack("<d", std)
        secret, blocks = self._secret.numpy().tobytes(), []
        for number, first in enumerate(range(0, count, BLOCK)):
            size = min(BLOCK, count - first)
            drawn = hashlib.shake_128(secret + number.to_bytes(8, "little") + place).digest(8 * size)
            bits = torch.frombuffer(bytearray(drawn), dtype=torch.int64)
            blocks.append(streams.to_normal(streams.to_uniform(bits)))
        return torch.cat(blocks) if blocks else torch.zeros(0)

    def epsilon(self, uploads: int, rounds: int) -> float | None:
        """Spent after so many rounds by the client with most uploads; None where there is no guarantee."""
        noise, delta = self.settings.noise, self.settings.delta
        if not noise or self.settings.reproducible:
            return None
        if self.settings.observer == "outsider" and self._sampling is not None:
            return sampled_epsilon(noise, rounds, delta, self._sampling)
        return gaussian_epsilon(noise, uploads, delta)

    def words(self, uploads: int, rounds: int) -> str:
        """The budget spent, for a progress line."""
        spent = self.epsilon(uploads, rounds)
        return "no privacy guarantee" if spent is None else f"epsilon {spent:.4g} (delta {self.settings.delta:g})"

    def describe(self, uploads: int, notes: tuple[str, ...] = (), *, rounds: int) -> dict[str, object]:
        """What goes into a result."""
        c, total = self.settings, self.epsilon(uploads, rounds)
        whom = "the server" if c.observer == "server" else "who sees every model but not who took part"
        if c.reproducible:
            verdict = "no guarantee: the noise follows from the run's seed, which the server knows (reproducible)"
        elif total is None:
            verdict = "no guarantee: there is no noise"
        elif total > MEANINGLESS:
            verdict = f"no meaningful guarantee: epsilon {total:.4g} is above {MEANINGLESS:g}"
        else:
            verdict = (
                f"against {whom} a user's data, over the whole run, are differentially private with "
                f"{self.words(uploads, rounds)}, for adding or removing them, if sums are secure"
            )
        return {
            "mechanism": c.mechanism,
            "clip": c.clip,
            "scale": (c.noise or 0.0) * c.clip,
            "delta": c.delta,
            "reproducible": c.reproducible,
            "epsilon_per_round": self.epsilon(1, 1),
            "epsilon_total": total,
            "spends_delta": total is not None,
            "most_uploads_of_a_client": uploads,
            "noise_multiplier": c.noise,
            "observer": c.observer,
            "assumes": "the number of a client's training items is public; metrics of evaluations leave without noise",
            "verdict": verdict,
            "notes": [*notes, "every client weighs the same"],
        }


def calibrated(settings: CentralPrivacy, method: Sending, task: Task, rounds: int) -> CentralPrivacy:
    """The settings with the noise that ``epsilon`` asks for in a run of so many rounds; as they are where noise is given."""
    if settings.epsilon is None:
        return settings
    sampling, runs = _sampling(method, task), rounds * method.blocks(task)
    if settings.observer == "outsider" and sampling is not None:
        noise = sampled_noise(settings.epsilon, runs, settings.delta, sampling)
    else:
        noise = gaussian_noise(settings.epsilon, most_uploads(method, task, rounds), settings.delta)
    return settings.model_copy(update={"noise": noise})


def most_uploads(method: Sending, task: Task, rounds: int) -> int:
    """In how many rounds the client takes part that takes part most often: a function of sizes and the seed."""
    runs = rounds * method.blocks(task)
    if method.participation == 1.0 and method.blocks(task) == 1:
        return runs
    state, counts = method.server_state(task), torch.zeros(task.n_clients, dtype=torch.int64)
    for number in range(runs):
        counts[method.participants(task, state, number)] += 1
    return int(counts.max())


def _moved(part: Table, new: Tensor) -> Table:
    assert part.known is not None
    return replace(part, value=part.known + new)


def _sampling(method: Sending, task: Task) -> Sampling | None:
    """How participants are drawn, where it is at random in every round anew."""
    if not method.draws_participants or method.participation == 1.0:
        return None
    able = len(task.able)
    return Sampling(able, max(1, int(method.participation * able)))
