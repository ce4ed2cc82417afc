"""What a server sees of one party says nothing about its numbers; below the threshold it learns nothing at all."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrec.secure.errors import RoundError
from fedrec.secure.keys import Stream, combine
from fedrec.secure.messages import CHECKSUM, HEADER, Kind
from fedrec.secure.purposes import mask_sign, own_mask, pair_mask
from fedrec.secure.ring import CHUNK, RingVector
from fedrec.secure.terms import propose
from secure.rounds import Round, a_round

BODY = HEADER.size + CHECKSUM


def upload(value: torch.Tensor, ring: int = 64) -> np.ndarray:
    """The bytes of one party's masked numbers, in a round of its own."""
    round = Round([value, torch.zeros_like(value)], ring=ring).until(Kind.MASKED)
    return np.frombuffer(round.parties[0].answer(round.inbox[0]), np.uint8)[BODY:]


def chi_square(data: np.ndarray) -> float:
    """Distance of the frequencies of bytes from uniform, in standard deviations of what uniform bytes have."""
    expected = len(data) / 256
    found = float(((np.bincount(data, minlength=256) - expected) ** 2 / expected).sum())
    return (found - 255) / np.sqrt(2 * 255)


@pytest.mark.parametrize("ring", [32, 64])
@pytest.mark.parametrize("value", [torch.zeros(40_000), torch.full((40_000,), 8.0), torch.randn(40_000).clamp(-8, 8)])
def test_bytes_of_an_upload_are_uniform(value, ring) -> None:
    plain = np.asarray(RingVector.encode(a_round_of(value, ring), {"x": value}).data)
    assert chi_square(plain) > 1000
    data = upload(value, ring)
    assert len(data) == len(plain) == 40_000 * ring // 8
    # Uniform bytes are farther away than this once in ten million times. Every place of a number by itself, too.
    assert abs(chi_square(data)) < 6
    assert all(abs(chi_square(data[place::8])) < 6 for place in range(8))


def a_round_of(value: torch.Tensor, ring: int = 64):
    return Round([value, value], ring=ring).terms


def features(uploads: list[np.ndarray]) -> np.ndarray:
    """Bytes, their bits, and a constant."""
    data = np.stack(uploads)
    return np.concatenate([data / 255 - 0.5, np.unpackbits(data, axis=1) - 0.5, np.ones((len(data), 1))], axis=1)


def held_out_accuracy(zeros: list[np.ndarray], ones: list[np.ndarray]) -> float:
    """Of a linear classifier (ridge regression) fitted to the even ones, on the odd ones."""
    x = features([each for pair in zip(zeros, ones, strict=True) for each in pair])
    y = np.tile([-1.0, 1.0], len(zeros))
    train = np.arange(len(x)) // 2 % 2 == 0
    weights = np.linalg.solve(x[train].T @ x[train] + 10 * np.eye(x.shape[1]), x[train].T @ y[train])
    return float(((x[~train] @ weights > 0) == (y[~train] > 0)).mean())


@pytest.mark.parametrize("ring", [32, 64])
def test_two_inputs_cannot_be_told_apart(ring) -> None:
    one, other, each = torch.zeros(8), torch.linspace(-8, 8, 8), 300
    masked = [[upload(value, ring) for _ in range(each)] for value in (one, other)]
    terms = a_round_of(one, ring)
    plain = [[np.asarray(RingVector.encode(terms, {"x": value}).data) for _ in range(each)] for value in (one, other)]
    assert held_out_accuracy(*plain) == 1.0
    # 300 held-out uploads: coins do worse than this once in thirty million times.
    assert abs(held_out_accuracy(*masked) - 0.5) < 0.16


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 5), st.sampled_from([Kind.KEYS, Kind.SHARES, Kind.MASKED, Kind.OPENED]), st.data())
def test_below_the_threshold_nothing_is_revealed(parties, kind, data) -> None:
    threshold = data.draw(st.integers(parties // 2 + 1, parties))
    left = data.draw(st.integers(0, threshold - 1))
    round = a_round(parties, threshold=threshold).until(kind)
    answers = round.answers()
    for party in range(left):
        round.server.receive(party, answers[party])
    sentence = f"{left} of {parties} parties sent their {kind.word}, and {threshold} are needed; nothing of any"
    with pytest.raises(RoundError, match=sentence):
        round.server.advance()
    with pytest.raises(RoundError, match="has no sum"):
        round.server.result()
    with pytest.raises(RoundError, match="is over"):
        round.server.advance()
    assert round.server._sum is None
    # All that the server ever got of a secret is fewer shares than the threshold.
    assert round.server.alive == set()
    if kind is not Kind.OPENED:
        assert all(each._shares.keys() <= set(range(parties)) and each._due is not None for each in round.parties)


def test_fewer_shares_than_the_threshold_do_not_open_a_mask() -> None:
    round = a_round(5).until(Kind.SHARES)
    secrets = [dict(each._seeds) for each in round.parties]
    round.until(Kind.OPENED)
    held = {party: each._shares[2] for party, each in enumerate(round.parties)}
    for which, name in ((0, "mask"), (1, "own")):
        enough = {party: held[party][which] for party in (0, 3, 4)}
        assert combine(enough) == secrets[2][name]
        assert combine({party: held[party][which] for party in (0, 3)}) != secrets[2][name]


def test_a_late_upload_stays_masked() -> None:
    """A party was taken for dropped, its key for masks is opened, and then its upload arrives: its own mask is left."""
    value = torch.full((20_000,), 3.0)
    round = Round([value, value, value]).until(Kind.MASKED)
    answers = round.answers()
    for party in (0, 1):
        round.server.receive(party, answers[party])
    round.inbox = round.server.advance()
    round.step()
    assert round.server.result()["x"][0] == 6.0
    late = RingVector(round.terms, answers[2][BODY:])
    for other in (0, 1):  # what the server can take away, as it does from the others
        public = round.parties[other]._masking.public
        late.mask(pair_mask(round.terms, round.parties[2]._masking, public, 2, other), -mask_sign(2, other))
    assert abs(chi_square(np.asarray(late.data))) < 6
    assert not torch.equal(late.decode()["x"], value)


def test_an_upload_stays_masked_when_the_masks_of_their_own_are_opened() -> None:
    """After a round the server knows every own mask; what is left of one upload are the masks between parties."""
    value = torch.full((20_000,), 3.0)
    round = Round([value, value, value]).until(Kind.MASKED)
    seeds = [each._seeds["own"] for each in round.parties]
    first = RingVector(round.terms, round.answers()[0][BODY:])
    first.mask(own_mask(round.terms, seeds[0], 0), -1)
    assert abs(chi_square(np.asarray(first.data))) < 6
    assert not torch.equal(first.decode()["x"], value)


def test_every_number_is_masked_whatever_ring_it_is_in() -> None:
    """Whole numbers in both rings, and more of them than are masked at a time."""
    many = CHUNK + 1000
    total = {"wide": torch.zeros(many, dtype=torch.int64), "narrow": torch.zeros(many, dtype=torch.int64)}
    terms = propose(total, ["a", "b"], {"wide": 2.0**40, "narrow": 1.0})
    assert [terms.ring(array) for array in terms.arrays] == [64, 32]
    vector = RingVector.encode(terms, total)
    vector.mask(bytes(32), 1)
    data = np.asarray(vector.data)
    # One stream, of which no byte is used twice.
    assert bytes(data) == bytes(Stream(bytes(32)).take(len(data)))
    vector.mask(bytes(32), -1)
    assert not np.asarray(vector.data).any()
