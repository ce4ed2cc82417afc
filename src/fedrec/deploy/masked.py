"""Sums of sites behind secure aggregation: the server asks step by step, and learns the sum and nothing of any one site.

A site that has something to add up first says that it is ready, with nothing else. Then come the steps of
``fedrec.secure``: keys, shares, masked numbers, and one share of every party to take the masks away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from fedrec.deploy.hidden import FEWEST
from fedrec.deploy.members import opened
from fedrec.deploy.message import BadMessageError, Message, bytes_tensor
from fedrec.deploy.transport import Replies
from fedrec.errors import FedrecError
from fedrec.federation.total import Total
from fedrec.secure.errors import MessageError
from fedrec.secure.server import Server
from fedrec.secure.terms import propose

BOUND = 2.0**24
"""Largest number in a site's sums, agreed beforehand: three sites are left 36 binary digits behind the point."""

COUNTED = 2.0**44
"""Largest count of bytes."""
Ask = Callable[[dict[str, Message]], Replies]
Tell = Callable[[str], None]


def secure_total(
    ask: Ask, tell: Tell, run: str, number: int, ready: list[str], like: Mapping[str, Tensor], fewest: int
) -> tuple[Total, list[str]]:
    """The sum over the sites that are ``ready`` and stay to the end, and which these are."""
    bounds = {name: COUNTED if "bytes_" in name else BOUND for name in like}
    least = max(min(fewest, len(ready)), len(ready) // 2 + 1, FEWEST)
    terms = propose(like, ready, bounds, round=number, threshold=least)
    server, inbox = Server(terms), {party: b"" for party in range(len(ready))}
    while server.due is not None:
        step = server.due.word
        requests = {}
        for party, data in inbox.items():
            tensors = {"data": bytes_tensor(data)} | ({} if data else {"terms": bytes_tensor(terms.encoded)})
            requests[ready[party]] = Message("masked", {"run": run, "number": number, "party": party}, tensors)
        replies = ask(requests)
        for party in inbox:
            try:
                reply = opened(replies[ready[party]], "masked", run=run, number=number)
                server.receive(party, bytes(reply.tensor("data", torch.uint8, None).numpy()))
            except (BadMessageError, MessageError) as error:
                tell(f"secure sum, {step}: going on without site {ready[party]}: {error}")
        inbox = server.advance()
    return server.result(), [ready[party] for party in sorted(server.alive)]


def check_sites(sites: int) -> None:
    """A sum of one is no sum."""
    if sites < 2:
        raise FedrecError("a secure sum needs two sites at least; one alone would tell what it has.")
