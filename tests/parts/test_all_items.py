"""Cross-entropy over all items is that of torch, in any blocks."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from fedrec.parts import all_items
from fedrec.parts.all_items import summed_loss


@pytest.mark.parametrize("numbers", [1, 100, 1 << 21])
def test_the_loss_and_its_gradients_are_those_of_cross_entropy_over_all_items(monkeypatch, numbers):
    """Of 30 items each: one row at a time, three, or all 17 at once."""
    monkeypatch.setitem(all_items.NUMBERS, "cpu", numbers)
    generator = torch.Generator().manual_seed(0)
    hidden, table = (torch.randn(n, 8, generator=generator, requires_grad=True) for n in (17, 30))
    targets = torch.randint(0, 30, (17,), generator=generator)
    total, each = summed_loss(hidden, table, targets)
    expected = cross_entropy(hidden @ table.T, targets, reduction="none")
    assert torch.allclose(each, expected, atol=1e-5)
    assert float(total.detach()) == pytest.approx(float(expected.detach().sum()))
    found = torch.autograd.grad(2 * total, (hidden, table))
    wanted = torch.autograd.grad(2 * expected.sum(), (hidden, table))
    for one, other in zip(found, wanted, strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def test_two_items_worked_out_by_hand():
    """Scores 1 and 3, the first item is wanted: -log(e / (e + e^3)), and the gradient is the shares less the target."""
    hidden = torch.tensor([[1.0]], requires_grad=True)
    table = torch.tensor([[1.0], [3.0]], requires_grad=True)
    total, each = summed_loss(hidden, table, torch.tensor([0]))
    assert each.tolist() == pytest.approx([math.log(1 + math.e**2)])
    assert not each.requires_grad
    share = 1 / (1 + math.e**2)  # of the wanted item
    of_hidden, of_table = torch.autograd.grad(total, (hidden, table))
    assert of_hidden.tolist() == [pytest.approx([(share - 1) * 1 + (1 - share) * 3])]
    assert of_table[:, 0].tolist() == pytest.approx([share - 1, 1 - share])


def test_scores_of_any_size_have_a_loss():
    """Scores of 500 and more, whose exponentials no float32 holds."""
    table = torch.tensor([[500.0], [-500.0], [499.0]])
    _, each = summed_loss(torch.ones(2, 1), table, torch.tensor([0, 1]))
    assert each.tolist() == pytest.approx([math.log(1 + math.exp(-1)), 1000 + math.log(1 + math.exp(-1))])


def test_nothing_to_learn_from_is_no_loss():
    table = torch.ones(3, 2, requires_grad=True)
    total, each = summed_loss(torch.zeros(0, 2), table, torch.zeros(0, dtype=torch.int64))
    assert (float(total.detach()), len(each)) == (0.0, 0)
    assert torch.equal(torch.autograd.grad(total, table)[0], torch.zeros(3, 2))
