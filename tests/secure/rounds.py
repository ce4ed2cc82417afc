"""Rounds of secure aggregation, stopped where a test wants to look."""

from __future__ import annotations

import torch

from fedrec.secure.identity import Identity, identities
from fedrec.secure.messages import Kind
from fedrec.secure.participant import Participant
from fedrec.secure.server import Server
from fedrec.secure.terms import Terms, propose


class Round:
    """Parties with one array, and a server; messages of one step after the other."""

    def __init__(
        self,
        values: list[torch.Tensor],
        *,
        threshold: int | None = None,
        bound: float = 8.0,
        round: int = 0,
        signed: bool = False,
        ring: int = 64,
        who: list[Identity] | None = None,
    ):
        names = [f"site {letter}" for letter in "abcdefgh"[: len(values)]]
        self.terms: Terms = propose(
            {"x": values[0]}, names, {"x": bound}, threshold=threshold, round=round, signed=signed, ring=ring
        )
        who = who or (identities(len(values)) if signed else [None] * len(values))
        self.parties = [
            Participant(self.terms, party, {"x": value}, identity=who[party]) for party, value in enumerate(values)
        ]
        self.server = Server(self.terms, who[0].known if who[0] else None)
        self.inbox: dict[int, bytes] = {}

    def answers(self) -> dict[int, bytes]:
        """What parties send in this step."""
        if self.server.due is Kind.KEYS:
            return {party: each.keys() for party, each in enumerate(self.parties)}
        return {party: self.parties[party].answer(message) for party, message in self.inbox.items()}

    def step(self, *, without: tuple[int, ...] = ()) -> None:
        """One whole step."""
        for party, message in self.answers().items():
            if party not in without:
                self.server.receive(party, message)
        self.inbox = self.server.advance()

    def until(self, kind: Kind) -> Round:
        """Whole steps before this one."""
        while self.server.due is not kind:
            self.step()
        return self


def a_round(parties: int = 3, **options) -> Round:
    return Round([torch.full((4,), float(party)) for party in range(parties)], **options)
