"""A whole round in one process: every party, the server, and the messages between them."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from fedrec.errors import ConfigError
from fedrec.federation.total import Total
from fedrec.secure.identity import identities
from fedrec.secure.messages import Kind
from fedrec.secure.participant import Participant
from fedrec.secure.server import Server
from fedrec.secure.terms import Terms, propose

Step = Literal["keys", "shares", "masked", "confirm", "opened"]
STEPS = {kind.name.lower(): kind for kind in (Kind.KEYS, Kind.SHARES, Kind.MASKED, Kind.CONFIRM, Kind.OPENED)}


@dataclass
class Cost:
    """Seconds of processor time and bytes of messages."""

    server_seconds: float = 0.0
    seconds: dict[int, float] = field(default_factory=dict)
    sent: dict[int, int] = field(default_factory=dict)
    received: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class SecureSum:
    """What the server learned."""

    total: Total
    parties: tuple[int, ...]
    """Whose sums are in it."""
    terms: Terms
    cost: Cost


def secure_sum(
    totals: Sequence[Mapping[str, Tensor]],
    dropouts: Mapping[int, Step] | None = None,
    *,
    bounds: Mapping[str, float] | None = None,
    threshold: int | None = None,
    ring: Literal[32, 64] = 64,
    signed: bool = False,
) -> SecureSum:
    """The sum of totals, one per party, as a secure aggregation gives it.

    ``dropouts`` says from which of its messages on a party is silent. Without ``bounds`` they are taken from the totals, which
    only somebody who sees all of them can do: between sites they are agreed beforehand.
    """
    like: dict[str, Tensor] = {}
    for total in totals:
        like |= {name: value for name, value in total.items() if name not in like}
    names = [f"party {party}" for party in range(len(totals))]
    bounds = {name: _bound(name, totals) for name in like} if bounds is None else bounds
    terms = propose(like, names, bounds, threshold=threshold, ring=ring, signed=signed)
    silent: dict[int, Kind] = {}
    for party, step in (dropouts or {}).items():
        steps = [name for name in STEPS if signed or name != "confirm"]
        if party not in range(len(totals)) or step not in steps:
            raise ConfigError(f"party {party} cannot fall silent at '{step}'; steps are {', '.join(steps)}")
        silent[party] = STEPS[step]
    return run(terms, totals, silent)


def run(terms: Terms, totals: Sequence[Mapping[str, Tensor]], silent: Mapping[int, Kind]) -> SecureSum:
    """One round under these terms."""
    who = identities(len(totals)) if terms.signed else None
    server, cost = Server(terms, who[0].known if who else None), Cost()
    participants: dict[int, Participant] = {}
    inbox = dict.fromkeys(range(len(totals)), b"")
    while server.due is not None:
        for party, message in inbox.items():
            if silent.get(party) is server.due:
                continue
            started = time.process_time()
            if party not in participants:
                participants[party] = Participant(terms, party, totals[party], identity=who[party] if who else None)
            answer = participants[party].answer(message) if message else participants[party].keys()
            sent = time.process_time()
            server.receive(party, answer)
            cost.server_seconds += time.process_time() - sent
            cost.seconds[party] = cost.seconds.get(party, 0.0) + sent - started
            cost.sent[party] = cost.sent.get(party, 0) + len(answer)
            cost.received[party] = cost.received.get(party, 0) + len(message)
        started = time.process_time()
        inbox = server.advance()
        cost.server_seconds += time.process_time() - started
    started = time.process_time()
    total = server.result()
    cost.server_seconds += time.process_time() - started
    return SecureSum(total, tuple(sorted(server.alive)), terms, cost)


def _bound(name: str, totals: Sequence[Mapping[str, Tensor]]) -> float:
    """The next power of two above what anybody has."""
    largest, whole = 0.0, False
    for total in totals:
        if name in total:
            value = total[name]
            whole = not value.is_floating_point()
            value = value[torch.isfinite(value)]  # what is not finite, the party itself refuses
            if value.numel():
                largest = max(largest, -float(value.min()), float(value.max()))
    if not largest or largest > 2.0**62:
        return max(largest, 1.0)
    power = 2.0 ** math.ceil(math.log2(largest))
    return max(power, 1.0) if whole else power
