"""What a server can do that lies about who is there: read one party without signatures, nothing with them."""

from __future__ import annotations

import pytest
import torch

from fedrec.secure.errors import MessageError
from fedrec.secure.keys import KEY, KeyPair, combine
from fedrec.secure.messages import CHECKSUM, HEADER, SERVER, Kind, Message
from fedrec.secure.purposes import mask_sign, own_mask, pair_mask
from fedrec.secure.ring import RingVector
from secure.rounds import Round

NEIGHBOURS = (1, 2)
"""All that party 0 is told to be there."""
LISTS = {1: (0, 1, 3), 2: (0, 2, 3), 3: (0, 3, 4), 4: (0, 3, 4)}
"""Who is alive, as it is told to each: three of them do without 1, three without 2, and all with 0."""


def attacked(*, signed: bool) -> tuple[Round, RingVector]:
    """Five parties with a threshold of three, of which party 0 has sent its numbers under masks with its neighbours only."""
    values = [torch.full((4,), 1.0 + party) for party in range(5)]
    round = Round(values, threshold=3, signed=signed).until(Kind.MASKED)
    envelopes = Message.decode(round.inbox[0], round.terms, Kind.ENVELOPES).records
    few = Message(Kind.ENVELOPES, SERVER, {party: envelopes[party] for party in NEIGHBOURS}).encode(round.terms)
    upload = RingVector(round.terms, round.parties[0].answer(few)[HEADER.size + CHECKSUM :])
    for party in LISTS:
        round.parties[party].answer(round.inbox[party])
    return round, upload


def alive(round: Round, parties: tuple[int, ...]) -> bytes:
    return Message(Kind.ALIVE, SERVER, dict.fromkeys(parties, b"")).encode(round.terms)


def test_without_signatures_it_reads_one_party() -> None:
    """Not protected, as the documentation says; were this to fail, it could promise more."""
    round, upload = attacked(signed=False)
    opened = {
        party: Message.decode(round.parties[party].answer(alive(round, told)), round.terms, Kind.OPENED).records
        for party, told in LISTS.items()
    }
    own = combine({party: opened[party][0] for party in (1, 3, 4)})
    upload.mask(own_mask(round.terms, own, 0), -1)
    for neighbour in NEIGHBOURS:
        without = [party for party, told in LISTS.items() if neighbour not in told]
        pair = KeyPair(combine({party: opened[party][neighbour] for party in without}), round.terms.digest)
        key = pair_mask(round.terms, pair, round.server._roster[0][KEY : 2 * KEY], neighbour, 0)
        upload.mask(key, -mask_sign(0, neighbour))
    assert upload.decode()["x"].tolist() == [1.0] * 4


def test_with_signatures_nobody_opens_anything() -> None:
    round, _ = attacked(signed=True)
    signed = {
        party: Message.decode(round.parties[party].answer(alive(round, told)), round.terms, Kind.CONFIRM).records[party]
        for party, told in LISTS.items()
    }
    # Of no list there are three signatures, not even of the one that two were told.
    for party, told in LISTS.items():
        those = {other: signed[other] for other in told if other in signed}
        with pytest.raises(MessageError, match=r"signed no such list|fewer parties than the threshold"):
            round.parties[party].answer(Message(Kind.CONFIRMED, SERVER, those).encode(round.terms))
        assert round.parties[party]._shares
    # And party 0 signs no list with parties of which it knows nothing.
    with pytest.raises(MessageError, match="calls parties alive that sent no shares"):
        round.parties[0].answer(alive(round, (0, 3, 4)))
