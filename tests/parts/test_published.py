"""Item-item weights as they are published: whole or the largest, wide or narrow numbers, and scores from them."""

import pytest
import torch

from fedrec.parts.published import WeightsConfig, no_weights, published, weighted_parts, weighted_scores

CPU = torch.device("cpu")
WEIGHTS = torch.tensor([[0.0, 1, 2, -3], [4, 0, -5, 0.5], [1, 1.5, 0, 1], [0.1, 0.2, 0.3, 0]])
HISTORY = torch.tensor([[3, 0, 2], [1, -1, -1]], dtype=torch.int32)
COUNTS = torch.tensor([[0.5, 1.0, 2.0], [4.0, 0.0, 0.0]])


def model(cuts=(4,), **options):
    return published(WeightsConfig(**options), torch.split(WEIGHTS.double(), cuts), 4, CPU)


@pytest.mark.parametrize("cuts", [(4,), (1, 3), (2, 1, 1)])
def test_all_weights_are_published_as_they_come(cuts):
    found = model(cuts)
    assert set(found) == {"weights"}
    assert found["weights"].dtype == torch.float32
    assert torch.equal(found["weights"], WEIGHTS)


@pytest.mark.parametrize("cuts", [(4,), (1, 3), (2, 1, 1)])
def test_the_largest_weights_of_every_item_are_kept_with_their_items(cuts):
    found = model(cuts, keep=2)
    assert set(found) == {"values", "kept"}
    assert found["kept"].tolist()[:2] == [[2, 3], [0, 2]]
    assert found["values"].tolist()[:2] == [[2, -3], [4, -5]]
    assert found["kept"].tolist()[3] == [1, 2]
    assert (found["values"].dtype, found["kept"].dtype) == (torch.float32, torch.int16)


def test_half_precision_is_rounding_to_it():
    found = model(keep=2, bits=16)
    assert found["values"].dtype == torch.float16
    assert found["values"][3].tolist() == [float(torch.tensor(x).half()) for x in (0.2, 0.3)]


@pytest.mark.parametrize("cuts", [(4,), (3, 1)])
def test_bytes_have_a_scale_for_every_item_that_makes_its_largest_127(cuts):
    found = model(cuts, keep=2, bits=8)
    assert set(found) == {"values", "kept", "scale"}
    assert found["values"].dtype == torch.int8
    assert found["scale"].tolist() == pytest.approx([3 / 127, 5 / 127, 1.5 / 127, 0.3 / 127])
    assert found["values"].tolist()[:2] == [[round(2 / 3 * 127), -127], [round(4 / 5 * 127), -127]]
    back = found["values"] * found["scale"][:, None]
    kept = WEIGHTS.gather(1, found["kept"].long())
    assert ((back - kept).abs() <= found["scale"][:, None] / 2 * 1.001).all()


def test_an_item_without_weights_has_zeros_in_bytes_too():
    found = published(WeightsConfig(keep=1, bits=8), [torch.zeros(2, 2)], 2, CPU)
    assert found["values"].tolist() == [[0], [0]]
    assert torch.isfinite(found["scale"]).all()


@pytest.mark.parametrize("bits", [32, 16, 8])
@pytest.mark.parametrize("keep", [None, 2, 99])
def test_before_there_is_a_model_it_has_the_shape_of_one_and_no_weight(keep, bits):
    config = WeightsConfig(keep=keep, bits=bits)
    before, after = no_weights(config, 4, CPU), model(keep=keep, bits=bits)
    assert set(before) == set(after)
    for name, value in before.items():
        assert (value.shape, value.dtype) == (after[name].shape, after[name].dtype)
    assert not weighted_scores(before, HISTORY, COUNTS).any()
    assert "scale" not in before or before["scale"].tolist() == [1.0] * 4


def test_more_items_than_a_short_number_counts_take_a_longer_one():
    config = WeightsConfig(keep=1)
    assert no_weights(config, 2**15 - 1, CPU)["kept"].dtype == torch.int16
    assert no_weights(config, 2**15, CPU)["kept"].dtype == torch.int32


@pytest.mark.parametrize("options", [{}, {"keep": 2}, {"keep": 2, "bits": 16}, {"keep": 2, "bits": 8}, {"keep": 4}])
def test_scores_and_their_parts_are_those_of_the_weights_that_were_published(options):
    found = model(**options)
    whole = found.get("weights")
    if whole is None:
        scale = found["scale"][:, None] if "scale" in found else 1.0
        whole = torch.zeros(4, 4).scatter_(1, found["kept"].long(), found["values"].float() * scale)
    expected = torch.stack([0.5 * whole[3] + whole[0] + 2 * whole[2], 4 * whole[1]])
    torch.testing.assert_close(weighted_scores(found, HISTORY, COUNTS), expected)
    items = torch.tensor([[1, 3], [0, 0]])
    parts = weighted_parts(found, HISTORY, COUNTS, items)
    assert parts.shape == (2, 3, 2)
    torch.testing.assert_close(parts[0, 2], 2 * whole[2, [1, 3]])
    torch.testing.assert_close(parts.sum(1), expected.gather(1, items))


def test_it_all_lies_on_the_device_that_was_asked_for():
    """``meta`` takes the place of a GPU, and then of a default device that was not asked for."""
    for options in ({}, {"keep": 2}, {"keep": 2, "bits": 8}):
        found = no_weights(WeightsConfig(**options), 4, torch.device("meta"))
        assert {value.device.type for value in found.values()} == {"meta"}
        with torch.device("meta"):
            again = model(**options)
        assert all(torch.equal(value, again[name]) for name, value in model(**options).items())
