"""The transformer against the modules of torch, and what it must not depend on."""

import pytest
import torch
from torch import nn
from torch.nn.functional import gelu, layer_norm

from fedrec.parts.transformer import Shape, dropout, hidden
from fedrec.sampling import streams


def drawn(shape, std=0.3, seed=0):
    """A network none of whose numbers is what it is at the start."""
    generator = torch.Generator().manual_seed(seed)
    flat = shape.initial(std, generator)
    return shape.split(flat + 0.1 * torch.randn(len(flat), generator=generator))


def by_modules(shape, network, embedded, length, kept=()):
    """One sequence [W, d] of this length, without padding, through torch's attention and one place after the other."""
    drop = iter(kept)

    def dropped(x):
        return x * next(drop) if kept else x

    x = dropped(embedded + network["positions"][shape.length - length :])
    for layer in range(shape.layers):
        part = {name: network[f"{layer}.{name}"] for name in
                ("norm", "mix", "out", "norm2", "up", "up_bias", "down", "down_bias")}  # fmt: skip
        attention = nn.MultiheadAttention(shape.dim, shape.heads, bias=False, batch_first=True)
        with torch.no_grad():
            attention.in_proj_weight.copy_(part["mix"].T)
            attention.out_proj.weight.copy_(part["out"].T)
            later = torch.ones(length, length).triu(1).bool()
            normed = layer_norm(x, (shape.dim,), *part["norm"])
            seen, _ = attention(normed[None], normed[None], normed[None], attn_mask=later)
        x = x + dropped(seen[0])
        inner = gelu(layer_norm(x, (shape.dim,), *part["norm2"]) @ part["up"] + part["up_bias"])
        x = x + dropped(inner @ part["down"] + part["down_bias"])
    return layer_norm(x, (shape.dim,), *network["norm"])


@pytest.mark.parametrize("shape", [Shape(8, 2, 2, 10), Shape(6, 1, 3, 7), Shape(4, 3, 1, 7)], ids=str)
@pytest.mark.parametrize("share", [0.0, 0.4])
def test_every_place_is_what_the_modules_of_torch_make_of_it(shape, share):
    network, generator = drawn(shape), torch.Generator().manual_seed(1)
    lengths = torch.tensor([7, 3, 1])
    x = torch.randn(3, 7, shape.dim, generator=generator)
    keys = streams.keys(0, streams.Purpose.DROPOUT, 3, torch.arange(3))
    kept = dropout(shape, keys, 7, share)
    found = hidden(shape, network, x, lengths, kept)
    assert found.shape == x.shape
    for client, length in enumerate(lengths.tolist()):
        own = [factor[client, :length] for factor in kept]
        expected = by_modules(shape, network, x[client, :length], length, own)
        torch.testing.assert_close(found[client, :length], expected, atol=2e-5, rtol=1e-4)


def test_the_vector_has_all_numbers_of_the_network_and_no_more():
    """Of width d: positions, and in every block two norms, two square layers of 4 d^2 and two of 8 d^2 with biases."""
    d, layers, length = 6, 2, 9
    shape = Shape(d, layers, 3, length)
    block = 2 * d + 3 * d * d + d * d + 2 * d + 4 * d * d + 4 * d + 4 * d * d + d
    assert shape.numbers == length * d + layers * block + 2 * d
    assert shape.sites == 5
    flat = torch.arange(float(shape.numbers))
    parts = shape.split(flat)
    assert torch.equal(torch.cat([part.flatten() for part in parts.values()]), flat)
    assert parts["positions"].shape == (length, d)
    assert parts["1.mix"].shape == (d, 3 * d)
    assert parts["0.up"].shape == (d, 4 * d)
    assert parts["0.down"].shape == (4 * d, d)
    parts["norm"][0, 0] = -1
    assert float(flat[-2 * d]) == -1, "they are views"


def test_at_the_start_norms_are_the_identity_biases_zero_and_matrices_of_the_given_deviation():
    shape = Shape(16, 2, 2, 40)
    parts = shape.split(shape.initial(0.02, torch.Generator().manual_seed(0)))
    for name, values in parts.items():
        kind = name.rpartition(".")[2]
        if kind in ("norm", "norm2"):
            assert torch.equal(values, torch.stack([torch.ones(16), torch.zeros(16)])), name
        elif kind in ("up_bias", "down_bias"):
            assert not values.any(), name
        else:
            assert float(values.std()) == pytest.approx(0.02, rel=0.15), name
            assert abs(float(values.mean())) < 4 * 0.02 / values.numel() ** 0.5, name
    again = shape.initial(0.02, torch.Generator().manual_seed(0))
    assert torch.equal(shape.split(again)["0.mix"], parts["0.mix"])
    assert not torch.equal(parts["0.mix"], parts["1.mix"])


def test_no_place_sees_what_comes_later():
    shape, generator = Shape(8, 2, 2, 10), torch.Generator().manual_seed(0)
    network = shape.split(shape.initial(0.3, generator))
    x = torch.randn(3, 6, 8, generator=generator)
    before = hidden(shape, network, x, torch.tensor([6, 6, 6]))
    x[:, 4, 0] += 1
    after = hidden(shape, network, x, torch.tensor([6, 6, 6]))
    changed = (before - after).abs().amax((0, 2)) > 1e-6
    assert changed.tolist() == [False] * 4 + [True] * 2


def test_positions_are_counted_from_the_newest():
    shape, generator = Shape(8, 1, 2, 10), torch.Generator().manual_seed(0)
    network = shape.split(shape.initial(0.3, generator))
    x = torch.randn(1, 10, 8, generator=generator)
    short = hidden(shape, network, x, torch.tensor([4]))[:, :4]
    network["positions"] = network["positions"].clone()
    network["positions"][:6] = 99.0  # nobody of length 4 is there
    assert torch.equal(hidden(shape, network, x, torch.tensor([4]))[:, :4], short)
    network["positions"][9, 0] += 1
    moved = (hidden(shape, network, x, torch.tensor([4]))[:, :4] - short).abs().amax((0, 2)) > 1e-6
    assert moved.tolist() == [False, False, False, True]


def test_what_is_dropped_follows_from_the_client_and_not_from_who_else_is_there():
    shape = Shape(6, 2, 2, 50)
    keys = streams.keys(0, streams.Purpose.DROPOUT, 3, torch.arange(40))
    wide, narrow = dropout(shape, keys, 50, 0.25), dropout(shape, keys[7:8], 20, 0.25)
    assert len(wide) == shape.sites
    for one, other in zip(wide, narrow, strict=True):
        assert one.shape == (40, 50, 6)
        assert torch.equal(one[7:8, :20], other)
    values = torch.stack(wide)
    assert set(values.unique().tolist()) == {0.0, float(torch.tensor(4 / 3))}
    assert abs(float((values == 0).float().mean()) - 0.25) < 0.01
    assert dropout(shape, keys, 5, 0.0) == []


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_what_is_left_is_scaled_up_so_that_the_mean_stays(share):
    shape = Shape(5, 1, 1, 50)
    values = torch.stack(dropout(shape, streams.keys(0, streams.Purpose.DROPOUT, 0, torch.arange(60)), 50, share))
    low, high = values.unique().tolist()
    assert low == 0.0
    assert high == pytest.approx(1 / (1 - share), rel=1e-4)
    assert abs(float((values == 0).float().mean()) - share) < 4 * (share * (1 - share) / values.numel()) ** 0.5


def test_sites_places_and_numbers_are_dropped_independently():
    shape = Shape(6, 2, 2, 50)
    values = torch.stack(dropout(shape, streams.keys(0, streams.Purpose.DROPOUT, 0, torch.arange(200)), 50, 0.5)) > 0
    for one, other in (
        (values[:-1], values[1:]),
        (values[:, :-1], values[:, 1:]),
        (values[:, :, :-1], values[:, :, 1:]),
        (values[..., :-1], values[..., 1:]),
    ):
        assert abs(float((one == other).float().mean()) - 0.5) < 4 * 0.5 / one.numel() ** 0.5


def test_masks_are_made_on_the_device_of_the_keys():
    """Where another device is the default, what is made without naming one does not fit the rest."""
    shape = Shape(6, 2, 2, 50)
    keys = streams.keys(0, streams.Purpose.DROPOUT, 3, torch.arange(4))
    network, x, lengths = drawn(shape), torch.randn(4, 7, 6), torch.tensor([7, 1, 3, 7])
    here = dropout(shape, keys, 7, 0.25)
    expected = hidden(shape, network, x, lengths, here)
    with torch.device("meta"):
        there = dropout(shape, keys, 7, 0.25)
        assert all(torch.equal(one, other) for one, other in zip(here, there, strict=True))
        assert torch.equal(hidden(shape, network, x, lengths, there), expected)
