"""With signatures, a server that lies about keys or about who is alive is found out before anything is opened."""

from __future__ import annotations

import pytest
import torch

from fedrec.errors import ConfigError
from fedrec.secure.errors import MessageError
from fedrec.secure.identity import Identity, identities
from fedrec.secure.messages import SERVER, Kind, Message
from fedrec.secure.participant import Participant
from secure.rounds import Round, a_round


def signatures(round: Round, alive: dict[int, tuple[int, ...]]) -> dict[int, bytes]:
    """What parties sign that are told these lists."""
    found = {}
    for party, others in alive.items():
        said = Message(Kind.ALIVE, SERVER, dict.fromkeys(others, b"")).encode(round.terms)
        answer = round.parties[party].answer(said)
        found[party] = Message.decode(answer, round.terms, Kind.CONFIRM).records[party]
    return found


def confirmed(round: Round, records: dict[int, bytes]) -> bytes:
    return Message(Kind.CONFIRMED, SERVER, records).encode(round.terms)


def test_a_signed_round_gives_the_sum() -> None:
    round = a_round(4, signed=True)
    while round.server.due is not None:
        round.step(without=(3,) if round.server.due is Kind.CONFIRM else ())
    assert round.server.result()["x"].tolist() == [6.0] * 4


def test_keys_in_the_name_of_another_are_found_out() -> None:
    round, forger = a_round(signed=True).until(Kind.SHARES), a_round(signed=True)
    roster = Message.decode(round.inbox[0], round.terms, Kind.ROSTER).records
    forged = Message.decode(forger.parties[1].keys(), forger.terms, Kind.KEYS).records[1]
    for changed in (forged, forged[:96] + roster[1][96:], roster[1][:96] + bytes(64)):
        message = Message(Kind.ROSTER, SERVER, roster | {1: changed}).encode(round.terms)
        with pytest.raises(MessageError, match="the keys of site b in its roster are not signed by it"):
            round.parties[0].answer(message)


def test_the_server_finds_them_out_too() -> None:
    round = a_round(signed=True)
    record = Message.decode(round.parties[0].keys(), round.terms, Kind.KEYS).records[0]
    with pytest.raises(MessageError, match=r"^site a: refused a message: its keys are not signed by it"):
        round.server.receive(0, Message(Kind.KEYS, 0, {0: record[:96] + bytes(64)}).encode(round.terms))
    round = a_round(signed=True).until(Kind.CONFIRM)
    with pytest.raises(MessageError, match="its signature is not of the list that it was sent"):
        round.server.receive(0, Message(Kind.CONFIRM, 0, {0: bytes(64)}).encode(round.terms))


def test_different_lists_of_who_is_alive_are_found_out() -> None:
    round = a_round(5, signed=True).until(Kind.CONFIRM)
    told = signatures(round, {0: (0, 1, 2, 3, 4), 1: (0, 1, 2, 3), 2: (0, 1, 2, 3, 4), 3: (0, 1, 2, 3)})
    with pytest.raises(MessageError, match="site b signed no such list of who is alive"):
        round.parties[0].answer(confirmed(round, told))
    with pytest.raises(MessageError, match="fewer parties than the threshold of 3"):
        round.parties[0].answer(confirmed(round, {party: told[party] for party in (0, 2)}))
    with pytest.raises(MessageError, match="of a party that is not alive"):
        round.parties[1].answer(confirmed(round, {1: told[1], 3: told[3], 4: told[0]}))
    assert all(round.parties[party]._shares for party in range(4))  # nobody opened anything


def test_a_signature_is_of_one_round() -> None:
    who = identities(3)
    one, other = (a_round(signed=True, who=who).until(Kind.SHARES) for _ in range(2))
    rosters = [Message.decode(each.inbox[0], each.terms, Kind.ROSTER).records for each in (one, other)]
    mixed = rosters[0] | {1: rosters[1][1]}
    with pytest.raises(MessageError, match="the keys of site b in its roster are not signed by it"):
        one.parties[0].answer(Message(Kind.ROSTER, SERVER, mixed).encode(one.terms))
    one.until(Kind.CONFIRM)
    other.until(Kind.CONFIRM)
    everybody = {party: (0, 1, 2) for party in range(3)}
    signatures(one, everybody)
    with pytest.raises(MessageError, match="signed no such list"):
        one.parties[0].answer(confirmed(one, signatures(other, everybody)))


def test_identities_and_terms_must_fit() -> None:
    signed, plain, who = a_round(signed=True).terms, a_round().terms, identities(3)
    x = {"x": torch.zeros(4)}
    with pytest.raises(ConfigError, match="these terms want signatures"):
        Participant(signed, 0, x)
    with pytest.raises(ConfigError, match="these terms are without signatures"):
        Participant(plain, 0, x, identity=who[0])
    with pytest.raises(ConfigError, match="2 identities are known, and 3 parties take part"):
        Participant(signed, 0, x, identity=Identity(who[0].private, who[0].known[:2]))
    with pytest.raises(ConfigError, match="the identity of site a is known by another key"):
        Participant(signed, 0, x, identity=who[1])
    assert who[0].private.hex() not in repr(who[0])
    assert repr(who[0].private) not in repr(who[0])


def test_a_party_chooses_among_how_many_it_hides() -> None:
    terms = a_round(4).terms
    Participant(terms, 0, {"x": torch.zeros(4)}, among=3)
    with pytest.raises(ConfigError, match="a sum of 3 parties may be told, and this one wants 4 at least"):
        Participant(terms, 0, {"x": torch.zeros(4)}, among=4)
