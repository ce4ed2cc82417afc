"""The server's side of one round: it passes keys and sealed shares on, adds up masked numbers, and takes masks away.

``receive`` takes messages of a step in any order; ``advance`` ends the step, and whoever sent nothing has dropped out. Fewer
than the threshold, at any step, and the round is given up: what was collected is forgotten and was of no use.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedrec.federation.total import Total
from fedrec.secure.errors import MessageError, RoundError
from fedrec.secure.identity import alive_signed, keys_signed
from fedrec.secure.keys import KEY, KeyPair, combine, fresh_seed, require
from fedrec.secure.messages import SERVER, Kind, Message
from fedrec.secure.purposes import commitment, mask_sign, own_mask, pair_mask
from fedrec.secure.ring import RingVector
from fedrec.secure.terms import Terms

STEPS = (Kind.KEYS, Kind.SHARES, Kind.MASKED, Kind.CONFIRM, Kind.OPENED)


class Server:
    """One round. For another, or another try, make another with new terms."""

    def __init__(self, terms: Terms, known: Sequence[bytes] | None = None) -> None:
        """Nobody has sent anything yet; with the ``known`` identities of parties it checks their signatures, too."""
        require()
        self.terms = terms
        self._known = known if terms.signed else None
        self._steps = [kind for kind in STEPS if terms.signed or kind is not Kind.CONFIRM]
        self.due: Kind | None = Kind.KEYS
        """What parties send now; none when the round is over."""
        self._expected = set(range(len(terms.parties)))
        self._got: dict[int, dict[int, bytes]] = {}
        self._roster: dict[int, bytes] = {}
        self._sharers: set[int] = set()
        self._alive: set[int] = set()
        self._sum: RingVector | None = None
        self._done = False

    def receive(self, party: int, data: bytes) -> None:
        """Take a message; the transport vouches that it is this party's. One that is refused changes nothing."""
        try:
            self._receive(party, data)
        except MessageError as error:
            raise MessageError(f"{self._name(party)}: refused a message: {error}") from None

    def _receive(self, party: int, data: bytes) -> None:
        if self.due is None:
            raise MessageError("the round is over")
        if party not in self._expected:
            raise MessageError("it is not, or no longer, in this round")
        if party in self._got:
            raise MessageError(f"its {self.due.word} came already")
        message = Message.decode(data, self.terms, self.due)
        if message.sender != party:
            raise MessageError(f"it says that it is of {self._name(message.sender)}")
        if self.due is Kind.MASKED:
            vector = RingVector(self.terms, message.block)
            if self._sum is None:
                self._sum = vector
            else:
                self._sum.add(vector)
        elif set(message.records) != self._whom(party):
            raise MessageError(f"its {self.due.word} are not those of the parties that they should be of")
        elif self.due is Kind.KEYS:
            self._new_keys(party, message.records[party])
        elif self.due is Kind.CONFIRM:
            self._signature(party, message.records[party])
        self._got[party] = message.records

    def _whom(self, party: int) -> set[int]:
        """Parties that a message must have a record of."""
        if self.due in (Kind.KEYS, Kind.CONFIRM):
            return {party}
        return set(self._roster) - {party} if self.due is Kind.SHARES else self._sharers

    def _new_keys(self, party: int, record: bytes) -> None:
        keys = {record[:KEY], record[KEY : 2 * KEY]}
        theirs = {got[other][start : start + KEY] for other, got in self._got.items() for start in (0, KEY)}
        if len(keys) < 2 or keys & theirs:
            raise MessageError("its keys are somebody's already")
        try:
            for key in keys:
                KeyPair(fresh_seed(), self.terms.digest).agree(key)
        except ValueError:
            raise MessageError("a key of it is none") from None
        known = self._known
        if known is not None and not keys_signed(known, self.terms, party, record[: 3 * KEY], record[3 * KEY :]):
            raise MessageError("its keys are not signed by it")

    def _signature(self, party: int, signature: bytes) -> None:
        known = self._known
        if known is not None and not alive_signed(known, self.terms, party, self._alive, signature):
            raise MessageError("its signature is not of the list that it was sent")

    @property
    def waiting(self) -> set[int]:
        """Parties that have not sent what is due."""
        return self._expected - set(self._got)

    def advance(self) -> dict[int, bytes]:
        """End the step; messages for those that are still there, none at the end of the round."""
        if self.due is None:
            raise RoundError(f"round {self.terms.round} is over")
        if len(self._got) < self.terms.threshold:
            have = f"{len(self._got)} of {len(self.terms.parties)} parties sent their {self.due.word}"
            self._give_up(f"{have}, and {self.terms.threshold} are needed; nothing of any of them is known")
        got, step = self._got, self.due
        self._got, self._expected, self.due = {}, set(got), self._after(step)
        if step is Kind.KEYS:
            self._roster = {party: records[party] for party, records in got.items()}
            return dict.fromkeys(got, self._message(Kind.ROSTER, self._roster))
        if step is Kind.SHARES:
            self._sharers = set(got)
            return {
                party: self._message(Kind.ENVELOPES, {other: got[other][party] for other in got if other != party})
                for party in got
            }
        if step is Kind.MASKED:
            self._alive = set(got)
            return dict.fromkeys(got, self._message(Kind.ALIVE, dict.fromkeys(got, b"")))
        if step is Kind.CONFIRM:
            return dict.fromkeys(got, self._message(Kind.CONFIRMED, {party: got[party][party] for party in got}))
        self._unmask(got)
        return {}

    def _after(self, step: Kind) -> Kind | None:
        place = self._steps.index(step) + 1
        return self._steps[place] if place < len(self._steps) else None

    @property
    def alive(self) -> set[int]:
        """Parties whose numbers are in the sum."""
        return self._alive

    def result(self) -> Total:
        """The sums over the parties that are ``alive``, once the round is over."""
        if not self._done or self._sum is None:
            raise RoundError(f"round {self.terms.round} has no sum")
        return self._sum.decode()

    def _unmask(self, got: dict[int, dict[int, bytes]]) -> None:
        answered = sorted(got)[: self.terms.threshold]
        assert self._sum is not None
        for party in sorted(self._sharers):
            seed = combine({other: got[other][party] for other in answered})
            masking, promised = self._roster[party][KEY : 2 * KEY], self._roster[party][2 * KEY : 3 * KEY]
            if party in self._alive:
                fits = commitment(self.terms, seed, party) == promised
            else:
                pair = KeyPair(seed, self.terms.digest)
                fits = pair.public == masking
            if not fits:
                self._give_up(f"the shares of {self._name(party)} do not fit each other: a party sent wrong ones")
            if party in self._alive:
                self._sum.mask(own_mask(self.terms, seed, party), -1)
                continue
            for other in self._alive:
                key = pair_mask(self.terms, pair, self._roster[other][KEY : 2 * KEY], party, other)
                self._sum.mask(key, -mask_sign(other, party))
        self._done = True

    def _give_up(self, why: str) -> None:
        self.due, self._sum, self._got, self._alive = None, None, {}, set()
        raise RoundError(f"the secure sum of round {self.terms.round} is given up: {why}")

    def _name(self, party: int) -> str:
        return self.terms.parties[party] if 0 <= party < len(self.terms.parties) else f"party {party}"

    def _message(self, kind: Kind, records: dict[int, bytes]) -> bytes:
        return Message(kind, SERVER, records).encode(self.terms)
