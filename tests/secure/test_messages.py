"""Messages that are replayed, cut short, doubled, too large, damaged or of another round are refused, and the round goes on."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrec.secure.errors import MessageError, RoundError
from fedrec.secure.messages import CHECKSUM, HEADER, SERVER, Kind, Message, _checksum, largest
from fedrec.secure.terms import Terms
from secure.rounds import Round, a_round

PARTY_SENDS = [Kind.KEYS, Kind.SHARES, Kind.MASKED, Kind.OPENED]
RIGHT = [3.0] * 4


def finish(round: Round) -> list[float]:
    while round.server.due is not None:
        round.step()
    return round.server.result()["x"].tolist()


def damaged(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def with_header(data: bytes, **changes) -> bytes:
    """The same message with other fields in its header, and the checksum that belongs to them."""
    fields = dict(zip(("magic", "format", "kind", "sender", "length", "digest"), HEADER.unpack_from(data), strict=True))
    header, body = HEADER.pack(*(fields | changes).values()), data[HEADER.size + CHECKSUM :]
    return header + _checksum(header, body) + body


BAD = {
    "empty": (lambda data: b"", "cut short, or no message"),
    "noise": (lambda data: b"\x80\x04" * 40, "no message of a secure sum|bytes where"),
    "cut short": (lambda data: data[:-1], "cut short or too long"),
    "header only": (lambda data: data[: HEADER.size + CHECKSUM], "cut short or too long"),
    "oversized": (lambda data: data + bytes(10_000), "bytes where .* at most"),
    "damaged body": (lambda data: damaged(data, len(data) - 1), "damaged on its way"),
    "damaged header": (lambda data: damaged(data, 6), "damaged on its way"),
    "format": (lambda data: with_header(data, format=2), "format 2, not 1"),
    "kind": (lambda data: with_header(data, kind=99), "brings kind 99"),
    "another step": (lambda data: with_header(data, kind=6), "brings list of who is alive"),
    "another round": (lambda data: with_header(data, digest=bytes(16)), "of another round"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("kind", [*PARTY_SENDS, Kind.CONFIRM], ids=lambda kind: kind.name)
def test_the_server_refuses_and_the_round_goes_on(kind, name) -> None:
    change, sentence = BAD[name]
    round = a_round(signed=kind is Kind.CONFIRM).until(kind)
    answers = round.answers()
    for party, message in answers.items():
        with pytest.raises(MessageError, match=f"^site {'abc'[party]}: refused a message: .*({sentence})"):
            round.server.receive(party, change(message))
        round.server.receive(party, message)
    round.inbox = round.server.advance()
    assert finish(round) == RIGHT


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("kind", PARTY_SENDS[1:], ids=lambda kind: kind.name)
def test_a_party_refuses_and_the_round_goes_on(kind, name) -> None:
    change, sentence = BAD[name]
    round = a_round().until(kind)
    if name == "another step" and kind is Kind.OPENED:
        sentence, change = "brings roster", lambda data: with_header(data, kind=2)
    with pytest.raises(MessageError, match=sentence):
        round.parties[1].answer(change(round.inbox[1]))
    assert finish(round) == RIGHT


@pytest.mark.parametrize("kind", PARTY_SENDS, ids=lambda kind: kind.name)
def test_doubled_and_replayed_messages(kind) -> None:
    earlier = a_round().until(kind).answers()
    round = a_round().until(kind)
    answers = round.answers()
    for party, message in answers.items():
        with pytest.raises(MessageError, match="of another round"):
            round.server.receive(party, earlier[party])
        round.server.receive(party, message)
        with pytest.raises(MessageError, match=f"its {kind.word} came already"):
            round.server.receive(party, message)
    round.inbox = round.server.advance()
    # What came in this step is of no use in the next one.
    for party, message in answers.items():
        with pytest.raises(MessageError, match=r"the round is over|bytes where|are what is due"):
            round.server.receive(party, message)
    assert finish(round) == RIGHT


def test_a_message_of_the_same_parties_in_an_earlier_round_number() -> None:
    one, other = a_round(round=1), a_round(round=2)
    with pytest.raises(MessageError, match="of another round"):
        other.server.receive(0, one.parties[0].keys())


def test_nobody_speaks_for_another() -> None:
    round = a_round()
    with pytest.raises(MessageError, match=r"^site b: refused a message: it says that it is of site a"):
        round.server.receive(1, round.parties[0].keys())
    with pytest.raises(MessageError, match=r"^party 9: refused a message: it is not, or no longer, in this round"):
        round.server.receive(9, b"")
    other = a_round().until(Kind.SHARES)
    forged = with_header(other.inbox[0], sender=1)
    with pytest.raises(MessageError, match="it is not the server's"):
        other.parties[0].answer(forged)


def test_who_dropped_out_cannot_come_back() -> None:
    round = a_round(4).until(Kind.MASKED)
    late = round.answers()
    for party in (0, 1, 3):
        round.server.receive(party, late[party])
    round.inbox = round.server.advance()
    with pytest.raises(MessageError, match=r"^site c: refused a message: it is not, or no longer, in this round"):
        round.server.receive(2, late[2])
    assert finish(round) == [4.0] * 4


def test_a_party_answers_each_message_once() -> None:
    round = a_round()
    keys = [each.keys() for each in round.parties]
    with pytest.raises(MessageError, match="sent already"):
        round.parties[0].keys()
    for party, message in enumerate(keys):
        round.server.receive(party, message)
    round.inbox = round.server.advance()
    roster = round.inbox[0]
    round.step()
    with pytest.raises(MessageError, match=r"bytes where|brings roster"):
        round.parties[0].answer(roster)
    round.step()
    alive = round.inbox[0]
    round.parties[0].answer(alive)
    with pytest.raises(MessageError, match="no message is due"):
        round.parties[0].answer(alive)


def alive(round: Round, *parties: int) -> bytes:
    return Message(Kind.ALIVE, SERVER, dict.fromkeys(parties, b"")).encode(round.terms)


def test_a_list_of_who_is_alive_is_checked() -> None:
    round = a_round(5).until(Kind.SHARES)
    round.step(without=(4,))
    round.until(Kind.OPENED)
    for parties, sentence in [
        ((0, 1), "fewer parties than the threshold of 3"),
        ((1, 2, 3), "does not call this party alive"),
        ((0, 1, 4), "calls parties alive that sent no shares"),
    ]:
        with pytest.raises(MessageError, match=sentence):
            round.parties[0].answer(alive(round, *parties))
    # It may not be answered twice, with one list and then another: that would open both secrets of a party.
    round.parties[0].answer(alive(round, 0, 1, 2))
    with pytest.raises(MessageError, match="no message is due"):
        round.parties[0].answer(alive(round, 0, 1, 2, 3))


def test_of_every_party_one_share_is_opened_and_never_both() -> None:
    round = a_round(4).until(Kind.OPENED)
    held = round.parties[0]._shares
    opened = Message.decode(round.parties[0].answer(alive(round, 0, 1, 3)), round.terms, Kind.OPENED).records
    assert opened == {party: own if party in {0, 1, 3} else mask for party, (mask, own) in held.items()}
    assert round.parties[0]._shares == {}


def test_the_roster_is_checked() -> None:
    round = a_round().until(Kind.SHARES)
    records = Message.decode(round.inbox[0], round.terms, Kind.ROSTER).records
    swapped = records | {0: records[1], 1: records[0]}
    twice = records | {2: records[1]}
    low_order = records | {1: bytes(32) + records[1][32:]}
    low_mask = records | {1: records[1][:32] + bytes(32) + records[1][64:]}
    for changed, sentence in [
        (swapped, "does not hold the keys of this party"),
        (twice, "a key is in its roster twice"),
        (low_order, "a key in its roster is none"),
        (low_mask, "a key in its roster is none"),
        ({0: records[0]}, "fewer parties than the threshold"),
    ]:
        with pytest.raises(MessageError, match=sentence):
            round.parties[0].answer(Message(Kind.ROSTER, SERVER, changed).encode(round.terms))
    assert finish(round) == RIGHT


def test_the_server_checks_keys() -> None:
    round = a_round()
    keys = [each.keys() for each in round.parties]
    round.server.receive(0, keys[0])
    record = Message.decode(keys[0], round.terms, Kind.KEYS).records[0]
    with pytest.raises(MessageError, match="its keys are somebody's already"):
        round.server.receive(1, Message(Kind.KEYS, 1, {1: record}).encode(round.terms))
    with pytest.raises(MessageError, match="a key of it is none"):
        round.server.receive(
            1, Message(Kind.KEYS, 1, {1: bytes(32) + record[:32][::-1] + record[64:]}).encode(round.terms)
        )
    with pytest.raises(MessageError, match="not those of the parties that they should be of"):
        round.server.receive(1, Message(Kind.KEYS, 1, {2: record}).encode(round.terms))


def test_envelopes_that_were_changed_do_not_open() -> None:
    round = a_round().until(Kind.MASKED)
    records = Message.decode(round.inbox[0], round.terms, Kind.ENVELOPES).records
    with pytest.raises(MessageError, match="the envelope of site b does not open"):
        round.parties[0].answer(
            Message(Kind.ENVELOPES, SERVER, records | {1: damaged(records[1], 0)}).encode(round.terms)
        )
    with pytest.raises(MessageError, match="not in the roster"):
        round.parties[0].answer(Message(Kind.ENVELOPES, SERVER, records | {0: records[1]}).encode(round.terms))
    assert finish(round) == RIGHT


@pytest.mark.parametrize("dropped", [(), (1,)])
def test_wrong_shares_are_noticed(dropped) -> None:
    """A party that opens other shares than it got spoils the round, and cannot spoil its sum unseen."""
    round = a_round().until(Kind.MASKED)
    round.step(without=dropped)
    answers = round.answers()
    records = Message.decode(answers[0], round.terms, Kind.OPENED).records
    wrong = records | {1: damaged(records[1], 3)}
    round.server.receive(0, Message(Kind.OPENED, 0, wrong).encode(round.terms))
    for party in set(answers) - {0}:
        round.server.receive(party, answers[party])
    with pytest.raises(RoundError, match="the shares of site b do not fit each other: a party sent wrong ones"):
        round.server.advance()
    with pytest.raises(RoundError, match="has no sum"):
        round.server.result()


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(PARTY_SENDS), st.binary(max_size=300))
def test_any_bytes_are_a_message_or_a_sentence(kind, data) -> None:
    terms = a_terms()
    with pytest.raises(MessageError):
        Message.decode(data, terms, kind)
    header = HEADER.pack(b"FRSA", 1, kind.value[0], 0, len(data), terms.digest[:16])
    try:
        message = Message.decode(header + _checksum(header, data) + data, terms, kind)
    except MessageError:
        return
    assert set(message.records) <= {0, 1, 2}
    assert all(len(record) == kind.width(terms) for record in message.records.values())


def a_terms() -> Terms:
    return _TERMS


_TERMS = a_round().terms


def test_records_are_in_order_and_of_parties_that_exist() -> None:
    terms = a_terms()
    for numbers, sentence in [
        ((1, 0), "twice, or in disorder"),
        ((1, 1), "twice, or in disorder"),
        ((3,), "not exist"),
    ]:
        body = b"".join(struct.pack("<H", number) for number in numbers)
        header = HEADER.pack(b"FRSA", 1, 6, SERVER, len(body), terms.digest[:16])
        with pytest.raises(MessageError, match=sentence):
            Message.decode(header + _checksum(header, body) + body, terms, Kind.ALIVE)


def test_masked_numbers_are_as_many_as_the_terms_say() -> None:
    round = a_round().until(Kind.MASKED)
    for party, message in round.answers().items():
        few = Message(Kind.MASKED, party, block=message[HEADER.size + CHECKSUM : -8]).encode(round.terms)
        with pytest.raises(MessageError, match="24 bytes of masked numbers instead of 32"):
            round.server.receive(party, few)
        round.server.receive(party, message)
    round.inbox = round.server.advance()
    assert finish(round) == RIGHT


def test_every_message_stays_below_what_terms_allow() -> None:
    round = a_round()
    while (kind := round.server.due) is not None:
        answers = round.answers()
        for party, message in answers.items():
            assert len(message) <= largest(round.terms, kind)
            round.server.receive(party, message)
        round.inbox = round.server.advance()


def test_terms_travel_as_bytes() -> None:
    terms = a_terms()
    again = Terms.decode(terms.encoded)
    assert again == terms
    assert again.digest == terms.digest
    for data, sentence in [
        (b"", "these terms are refused"),
        (b"{}", "these terms are refused: session"),
        (terms.encoded.replace(b'"threshold":2', b'"threshold":1'), "threshold"),
        (terms.encoded.replace(b'"threshold":2', b'"threshold":4'), "the threshold of 3 parties is 2 to 3, not 4"),
        (terms.encoded.replace(b"site b", b"site a"), "a name is in it twice"),
        (terms.encoded.replace(b'"bound":8.0', b'"bound":1e18'), "can overflow 64 bits"),
        (terms.encoded.replace(b'"bound":8.0', b'"bound":1e-30'), "finer than its numbers are written"),
        (terms.encoded.replace(b'"bound":8.0', b'"bound":Infinity'), "these terms are refused"),
        (terms.encoded.replace(b'"shape":[4]', b'"shape":[1000000,1000000]'), "numbers in one sum"),
        (bytes(2_000_000), "2,000,000 bytes"),
    ]:
        with pytest.raises(MessageError, match=sentence):
            Terms.decode(data)
