import torch
from torch.nn.functional import cross_entropy

from fedrec.parts import all_items
from fedrec.parts.adamw import stepped
from fedrec.parts.all_items import summed_loss
from fedrec.parts.transformer import Shape, dropout, hidden
from fedrec.sampling import streams


def test_the_loss_and_its_gradients_are_those_of_cross_entropy_over_all_items(monkeypatch):
    monkeypatch.setitem(all_items.NUMBERS, "cpu", 100)
    generator = torch.Generator().manual_seed(0)
    hidden, table = (torch.randn(n, 8, generator=generator, requires_grad=True) for n in (17, 30))
    targets = torch.randint(0, 30, (17,), generator=generator)
    total, each = summed_loss(hidden, table, targets)
    expected = cross_entropy(hidden @ table.T, targets, reduction="none")
    assert torch.allclose(each, expected, atol=1e-5)
    found = torch.autograd.grad(2 * total, (hidden, table))
    wanted = torch.autograd.grad(2 * expected.sum(), (hidden, table))
    for one, other in zip(found, wanted, strict=True):
        assert torch.allclose(one, other, atol=1e-5)


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
        assert torch.equal(one[7:8, :20], other)
    values = torch.stack(wide)
    assert set(values.unique().tolist()) == {0.0, float(torch.tensor(4 / 3))}
    assert abs(float((values == 0).float().mean()) - 0.25) < 0.01
    assert dropout(shape, keys, 5, 0.0) == []


def test_adamw_is_that_of_torch():
    generator = torch.Generator().manual_seed(0)
    weights = torch.nn.Parameter(torch.randn(5, generator=generator))
    theirs = torch.optim.AdamW([weights], lr=0.01, weight_decay=0.1)
    ours = {
        "w": weights.detach().clone(),
        "steps": torch.zeros(1),
        "first.w": torch.zeros(5),
        "second.w": torch.zeros(5),
    }
    for _ in range(4):
        weights.grad = torch.randn(5, generator=generator)
        theirs.step()
        ours = stepped(ours, {"w": weights.grad}, lr=0.01, weight_decay=0.1)
    assert torch.allclose(ours["w"], weights, atol=1e-6)
