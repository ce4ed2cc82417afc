"""A party's side of one round: what it sends, and what it refuses to answer.

It answers each of the server's messages once, and of every party it opens one share, never both. Against a server that tells
different parties different things this is enough only where the terms want signatures: then a threshold t among n parties
withstands it as long as fewer than 2t - n of them help it.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from fedrec.errors import ConfigError
from fedrec.secure.errors import MessageError
from fedrec.secure.identity import Identity, alive_signed, check_identity, keys_signed
from fedrec.secure.keys import KEY, SEED, KeyPair, fresh_seed, require, seal, split, unseal
from fedrec.secure.messages import SERVER, Kind, Message
from fedrec.secure.purposes import commitment, envelope, mask_sign, own_mask, pair_mask
from fedrec.secure.ring import RingVector
from fedrec.secure.terms import Terms

Shares = dict[int, bytes]


class Participant:
    """One party in one round. For another round, or another try, make another."""

    def __init__(
        self,
        terms: Terms,
        party: int,
        total: Mapping[str, Tensor],
        *,
        among: int = 2,
        identity: Identity | None = None,
    ) -> None:
        """Write down this party's numbers, whose bounds are checked here; ``among`` is the fewest it lets itself be summed with."""
        require()
        if not 0 <= party < len(terms.parties):
            raise ConfigError(f"there is no party {party} among {len(terms.parties)}")
        if terms.threshold < among:
            raise ConfigError(f"a sum of {terms.threshold} parties may be told, and this one wants {among} at least")
        check_identity(terms, party, identity)
        self.terms, self.party, self.identity = terms, party, identity
        self._vector: RingVector | None = RingVector.encode(terms, total)
        self._seeds = {"mask": fresh_seed(), "own": fresh_seed()}
        self._sealing = KeyPair(fresh_seed(), terms.digest)
        self._masking = KeyPair(self._seeds["mask"], terms.digest)
        self._due: Kind | None = Kind.KEYS
        self._roster: Shares = {}
        self._shares: dict[int, tuple[bytes, bytes]] = {}
        self._alive: set[int] = set()

    def keys(self) -> bytes:
        """The first message, sent once."""
        if self._due is not Kind.KEYS:
            raise MessageError("the keys of this round were sent already")
        self._due = Kind.ROSTER
        self._own_record = (
            self._sealing.public + self._masking.public + commitment(self.terms, self._seeds["own"], self.party)
        )
        if self.identity is not None:
            self._own_record += self.identity.sign_keys(self.terms, self.party, self._own_record)
        return self._message(Kind.KEYS, {self.party: self._own_record})

    def answer(self, data: bytes) -> bytes:
        """The reply to the server's next message; one that is refused changes nothing."""
        due = self._due
        if due is None or due is Kind.KEYS:
            raise MessageError("no message is due: this round is over, or has not begun, for this party")
        message = Message.decode(data, self.terms, due)
        if message.sender != SERVER:
            raise MessageError("it is not the server's")
        if len(message.records) + (due is Kind.ENVELOPES) < self.terms.threshold:
            raise MessageError(f"its {due.word} name fewer parties than the threshold of {self.terms.threshold}")
        if due is Kind.ROSTER:
            return self._share(message.records)
        if due is Kind.ENVELOPES:
            return self._mask(message.records)
        if due is Kind.ALIVE:
            return self._hear(set(message.records))
        return self._agree(message.records)

    def _share(self, roster: Shares) -> bytes:
        """Split both secrets, and seal a share of each for every other party."""
        if roster.get(self.party) != self._own_record:
            raise MessageError("its roster does not hold the keys of this party")
        publics = [record[start : start + KEY] for record in roster.values() for start in (0, KEY)]
        if len(set(publics)) < len(publics):
            raise MessageError("a key is in its roster twice")
        if self.identity is not None:
            for other, record in roster.items():
                if not keys_signed(self.identity.known, self.terms, other, record[: 3 * KEY], record[3 * KEY :]):
                    raise MessageError(f"the keys of {self.terms.parties[other]} in its roster are not signed by it")
        n, threshold = len(self.terms.parties), self.terms.threshold
        split_mask, split_own = (split(self._seeds[name], threshold, n) for name in ("mask", "own"))
        try:
            sealed = {
                other: seal(
                    envelope(self.terms, self._sealing, record[:KEY], self.party, other),
                    split_mask[other] + split_own[other],
                )
                for other, record in roster.items()
                if other != self.party
            }
            self._mask_keys = {
                other: pair_mask(self.terms, self._masking, roster[other][KEY : 2 * KEY], self.party, other)
                for other in sealed
            }
        except ValueError:
            raise MessageError("a key in its roster is none") from None
        self._shares[self.party] = split_mask[self.party], split_own[self.party]
        self._roster, self._due = roster, Kind.ENVELOPES
        return self._message(Kind.SHARES, sealed)

    def _mask(self, envelopes: Shares) -> bytes:
        """Take the shares of others, and send the numbers with a mask for each of them and one of its own."""
        if self.party in envelopes or not set(envelopes) <= set(self._roster):
            raise MessageError("its envelopes are of parties that are not in the roster")
        opened: dict[int, tuple[bytes, bytes]] = {}
        for other, sealed in envelopes.items():
            key = envelope(self.terms, self._sealing, self._roster[other][:KEY], other, self.party)
            try:
                both = unseal(key, sealed)
            except ValueError:
                raise MessageError(f"the envelope of {self.terms.parties[other]} does not open") from None
            opened[other] = both[:SEED], both[SEED:]
        assert self._vector is not None
        vector, self._vector = self._vector, None
        for other in opened:
            vector.mask(self._mask_keys[other], mask_sign(self.party, other))
        vector.mask(own_mask(self.terms, self._seeds["own"], self.party), 1)
        self._shares |= opened
        self._seeds, self._mask_keys, self._due = {}, {}, Kind.ALIVE
        return Message(Kind.MASKED, self.party, block=vector.data).encode(self.terms)

    def _hear(self, alive: set[int]) -> bytes:
        """Check who is said to be alive; sign it where the terms want that, and open shares where they do not."""
        if not alive <= set(self._shares):
            raise MessageError("it calls parties alive that sent no shares")
        if self.party not in alive:
            raise MessageError("it does not call this party alive, so nothing is opened for it")
        self._alive = alive
        if self.identity is None:
            return self._open()
        self._due = Kind.CONFIRMED
        return self._message(Kind.CONFIRM, {self.party: self.identity.sign_alive(self.terms, alive)})

    def _agree(self, signatures: Shares) -> bytes:
        """Open shares once a threshold of parties signed the same list."""
        assert self.identity is not None
        if not set(signatures) <= self._alive:
            raise MessageError("a signature in it is of a party that is not alive")
        for other, signature in signatures.items():
            if not alive_signed(self.identity.known, self.terms, other, self._alive, signature):
                raise MessageError(f"{self.terms.parties[other]} signed no such list of who is alive")
        return self._open()

    def _open(self) -> bytes:
        """One share of every party: of its own mask if it is alive, else of its key for masks with others."""
        shares, self._shares, self._due = self._shares, {}, None
        return self._message(
            Kind.OPENED, {other: own if other in self._alive else mask for other, (mask, own) in shares.items()}
        )

    def _message(self, kind: Kind, records: Shares) -> bytes:
        return Message(kind, self.party, records).encode(self.terms)
