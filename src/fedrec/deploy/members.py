"""The sites of a run: who joined, and which numbers their users have in the federation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedrec.deploy.message import BadMessageError, Message
from fedrec.deploy.transport import Missing


@dataclass(frozen=True, eq=False)
class Member:
    """A site that takes part in a run."""

    name: str
    first: int
    """Number of its first user in the federation; the others follow."""
    counts: Tensor
    """[c] int64: training items of each of its users."""
    split_hash: str

    @property
    def clients(self) -> Tensor:
        """Numbers of its users."""
        return torch.arange(self.first, self.first + len(self.counts))


def members_of(joined: dict[str, Message]) -> list[Member]:
    """Number the users of the sites that joined, in the order given."""
    found, first = [], 0
    for name, reply in joined.items():
        counts = reply.tensor("counts", torch.int64, None)
        found.append(Member(name, first, counts, reply.text("split_hash")))
        first += len(counts)
    return found


def joined(data: bytes | Missing, catalogue: str) -> Message:
    """A site's answer to being asked to join."""
    reply = opened(data, "joined")
    counts = reply.tensor("counts", torch.int64, None)
    if not len(counts) or bool((counts < 0).any()):
        raise BadMessageError("it has no users")
    reply.text("split_hash")
    if reply.text("catalogue") != catalogue:
        raise BadMessageError("it has another catalogue")
    return reply


def opened(data: bytes | Missing, kind: str, **wanted: Any) -> Message:
    """The reply of this kind, with these plain values, or a sentence about what came instead."""
    if isinstance(data, Missing):
        raise BadMessageError(data.reason)
    reply = Message.decode(data)
    if reply.kind == "refused":
        raise BadMessageError(f"it refused: {str(reply.fields.get('reason'))[:500]}")
    if reply.kind != kind:
        raise BadMessageError(f"it sent '{reply.kind}', not '{kind}'")
    for name, value in wanted.items():
        if reply.fields.get(name) != value:
            raise BadMessageError(f"its {name} is {reply.fields.get(name)}, not {value}")
    return reply


def packed(members: list[Member]) -> tuple[list[dict[str, Any]], Tensor]:
    """Members as plain values and one array, for a checkpoint."""
    about = [{"name": m.name, "users": len(m.counts), "split_hash": m.split_hash} for m in members]
    return about, torch.cat([member.counts for member in members])


def unpacked(about: list[dict[str, Any]], counts: Tensor) -> list[Member]:
    """Members from a checkpoint."""
    found, first = [], 0
    for one in about:
        found.append(Member(one["name"], first, counts[first : first + one["users"]], one["split_hash"]))
        first += one["users"]
    return found
