"""The masked sum is the plain sum, whoever drops out, as long as enough stay."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedrec
from fedrec.errors import ConfigError
from fedrec.federation.total import Total
from fedrec.secure.errors import RoundError
from fedrec.secure.in_process import STEPS, secure_sum
from fedrec.secure.ring import RingVector
from fedrec.secure.suitable import require_sums

CLOSE = 2.0**-40


def totals(parties: int, seed: int = 0) -> list[Total]:
    """Floats of two kinds, whole numbers, an empty array and a number."""
    rng = torch.Generator().manual_seed(seed)
    return [
        Total(
            {
                "table": torch.randn(5, 3, generator=rng),
                "weight": torch.randn((), generator=rng, dtype=torch.float64),
                "counts": torch.randint(-(2**40), 2**40, (7,), generator=rng),
                "few": torch.randint(-9, 9, (3,), generator=rng, dtype=torch.int32),
                "none": torch.zeros(0, 4),
            }
        )
        for _ in range(parties)
    ]


def in_the_ring(found, given, terms) -> None:
    """The sum of codes is the code of the sum, to the bit."""
    plain = RingVector(terms)
    for party in found:
        plain.add(RingVector.encode(terms, given[party]))
    return plain.decode()


@st.composite
def rounds(draw):
    parties = draw(st.integers(2, 6))
    threshold = draw(st.integers(parties // 2 + 1, parties))
    signed = draw(st.booleans())
    steps = st.sampled_from([step for step in STEPS if signed or step != "confirm"])
    return parties, threshold, signed, draw(st.dictionaries(st.integers(0, parties - 1), steps, max_size=parties))


@settings(max_examples=60, deadline=None)
@given(rounds(), st.sampled_from([32, 64]))
def test_any_dropouts_give_the_exact_sum_or_a_refusal(case, ring) -> None:
    parties, threshold, signed, silent = case
    data, options = totals(parties), {"threshold": threshold, "ring": ring, "signed": signed}
    if parties - len(silent) < threshold:
        with pytest.raises(RoundError, match=f"{threshold} are needed; nothing of any of them is known"):
            secure_sum(data, silent, **options)
        return
    found = secure_sum(data, silent, **options)
    # Who sent masked numbers is in the sum, even if it was not heard of again.
    late = {"confirm", "opened"}
    assert set(found.parties) == {party for party in range(parties) if silent.get(party, "opened") in late}
    exact = in_the_ring(found.parties, data, found.terms)
    for name, value in exact.items():
        assert torch.equal(found.total[name], value), name
    for name in ("counts", "few"):
        assert torch.equal(found.total[name], sum(data[party][name] for party in found.parties))
    plain = sum(data[party]["table"].double() for party in found.parties)
    assert found.total["table"].dtype == torch.float32
    assert float((found.total["table"] - plain).abs().max()) < (1e-5 if ring == 64 else 1e-4)


def test_digits_that_fill_64_bits_leave_an_error_below_rounding() -> None:
    data = [Total({"x": torch.randn(1000, dtype=torch.float64)}) for _ in range(3)]
    plain = data[0].merge(data[1]).merge(data[2])
    assert float((secure_sum(data).total["x"] - plain["x"]).abs().max()) < CLOSE


def test_numbers_at_their_bound_do_not_overflow_either_ring() -> None:
    """Every party at the bound, in as many parties and with such bounds as make the digits' room as tight as it gets."""
    for parties in (2, 3, 4, 5, 7):
        for bound in (1.0, 0.999, 1.3, 7.9, 2.0**-20, 1e6):
            data = [Total({"x": torch.tensor([bound, -bound], dtype=torch.float64)}) for _ in range(parties)]
            for ring in (32, 64):
                found = secure_sum(data, bounds={"x": bound}, ring=ring)
                assert [found.terms.ring(array) for array in found.terms.arrays] == [ring]
                wanted = torch.tensor([bound, -bound], dtype=torch.float64) * parties
                assert torch.allclose(found.total["x"], wanted, rtol=1e-7)


def test_half_the_bytes_in_the_smaller_ring() -> None:
    data = [Total({"x": torch.randn(1000)}) for _ in range(3)]
    wide, narrow = secure_sum(data), secure_sum(data, ring=32)
    assert wide.cost.sent[0] - narrow.cost.sent[0] == 4000
    assert [narrow.terms.ring(array) for array in narrow.terms.arrays] == [32]


def test_a_party_without_an_array_adds_nothing_to_it() -> None:
    found = secure_sum([Total({"x": torch.ones(2)}), Total(), Total({"x": torch.ones(2)})])
    assert found.total["x"].tolist() == [2, 2]


def test_rounds_do_not_repeat_masks() -> None:
    data = totals(3)
    one, other = secure_sum(data), secure_sum(data)
    assert one.terms.digest != other.terms.digest


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"x": torch.tensor([1.0, float("nan")])}, "the array 'x' holds numbers that are not finite; nothing is sent"),
        ({"x": torch.tensor([1.0, float("inf")])}, "the array 'x' holds numbers that are not finite; nothing is sent"),
        ({"x": torch.tensor([1.0, -4.5])}, "the array 'x' has values up to 4.5, beyond the agreed 4; nothing is sent"),
        ({"x": torch.ones(3)}, r"the array 'x' is float32 \[3\], not float32 \[2\]"),
        ({"x": torch.ones(2).double()}, r"the array 'x' is float64 \[2\], not float32 \[2\]"),
        ({"y": torch.ones(2)}, "the array 'y' is not in the terms of the secure sum"),
    ],
)
def test_numbers_that_do_not_fit_are_never_masked(change, sentence) -> None:
    from fedrec.secure.participant import Participant
    from fedrec.secure.terms import propose

    terms = propose({"x": torch.ones(2)}, ["a", "b"], {"x": 4.0})
    Participant(terms, 0, {"x": torch.tensor([4.0, -4.0])})
    with pytest.raises(ConfigError, match=sentence):
        Participant(terms, 0, change)


def test_extremes_of_whole_numbers_do_not_overflow() -> None:
    most = 2**62 - 1
    data = [Total({"x": torch.tensor([value, -value])}) for value in (most // 2, most // 2)]
    found = secure_sum(data, bounds={"x": float(2**61)})
    assert found.total["x"].tolist() == [2 * (most // 2), -2 * (most // 2)]
    with pytest.raises(ConfigError, match="can overflow 64 bits"):
        secure_sum(data, bounds={"x": float(2**62)})
    with pytest.raises(ConfigError, match="beyond the agreed"):
        secure_sum([Total({"x": torch.tensor([-(2**63)])})] * 2, bounds={"x": 8.0})


def test_sums_of_small_whole_numbers_fit_their_type() -> None:
    most = 2**30 - 1
    data = [Total({"x": torch.tensor([most, -most], dtype=torch.int32)}) for _ in range(2)]
    assert secure_sum(data, bounds={"x": most}).total["x"].tolist() == [2 * most, -2 * most]
    with pytest.raises(ConfigError, match="the sum of 'x' can be 2,147,483,648, which int32 does not hold"):
        secure_sum(data, bounds={"x": 2**30})


@pytest.mark.parametrize(("parties", "threshold"), [(4, 2), (5, 2), (3, 4), (2, 1), (6, 0)])
def test_a_threshold_is_more_than_half(parties, threshold) -> None:
    with pytest.raises(ConfigError, match=r"a secure sum cannot be taken so: .*(threshold|greater than or equal to 2)"):
        secure_sum(totals(parties), threshold=threshold)


def test_one_party_alone_has_no_secure_sum() -> None:
    with pytest.raises(ConfigError, match="a secure sum cannot be taken so: parties"):
        secure_sum(totals(1))
    with pytest.raises(ConfigError, match="a secure sum cannot be taken so: arrays"):
        secure_sum([Total(), Total()])


def test_unknown_dropouts_are_refused() -> None:
    with pytest.raises(ConfigError, match="party 7 cannot fall silent at 'keys'"):
        secure_sum(totals(3), {7: "keys"})


def test_only_sum_methods() -> None:
    assert require_sums(fedrec.create("fedgram")).sees == "sums only"
    with pytest.raises(ConfigError, match=r"gpfedrec cannot run behind secure aggregation: .* every client's upload"):
        require_sums(fedrec.create("gpfedrec"))
