"""From sums over histories to weights: the constrained optimum, and two items by hand."""

import pytest
import torch

from fedrec.errors import ConfigError
from fedrec.parts import inverse, ordered_weights, symmetric
from fedrec.parts.inverse import SINGLE
from fedrec.parts.order import ONE
from fedrec.parts.ordered_weights import in_place, precision, weight_rows

ITEMS = 11


def sums(size=ITEMS, seed=0):
    """A (symmetric, positive) and R, in whole numbers."""
    draw = torch.Generator().manual_seed(seed)
    rows = torch.randint(0, 4, (3 * size, size), generator=draw)
    return rows.T @ rows, torch.randint(0, 9, (size, size), generator=draw)


def weights(past, after, lam):
    return torch.cat(list(weight_rows((past.triu() * ONE), after * ONE, lam)))


def by_hand(past, after, lam):
    """Every column is a ridge regression without its own item: ``B_jj`` is left out of the unknowns."""
    past, after = past.double(), after.double()
    found = torch.zeros_like(past)
    for item in range(len(past)):
        others = [other for other in range(len(past)) if other != item]
        square = past[others][:, others] + lam * torch.eye(len(others), dtype=torch.float64)
        found[others, item] = torch.linalg.solve(square, after[others, item])
    return found


@pytest.mark.parametrize("lam", [0.01, 1e4])
def test_every_column_is_the_regression_without_its_own_item(lam):
    """The first in float64, the other in float32."""
    past, after = sums()
    found = weights(past, after, lam)
    assert found.dtype == (torch.float64 if lam < 1 else torch.float32)
    torch.testing.assert_close(found.double(), by_hand(past, after, lam), rtol=1e-4, atol=1e-9)
    assert found.diagonal().tolist() == [0.0] * ITEMS


def test_two_items_by_hand():
    """B_12 = R_12 / (A_11 + lambda): what follows the first item, shrunk, whatever A_12 is."""
    past, after = torch.tensor([[3, 2], [2, 5]]), torch.tensor([[7, 4], [6, 9]])
    found = weights(past, after, 1.0)
    assert found.flatten().tolist() == pytest.approx([0.0, 4 / (3 + 1), 6 / (5 + 1), 0.0])


def test_floating_sums_are_taken_as_they_are():
    past, after = (value.double() for value in sums())
    found = torch.cat(list(weight_rows(past.clone(), after.clone(), 0.5)))
    torch.testing.assert_close(found, by_hand(past, after, 0.5))


def test_blocks_of_rows_change_nothing(monkeypatch):
    past, after = sums()
    whole = weights(past, after, 0.5)
    for module in (ordered_weights, inverse, symmetric):
        monkeypatch.setattr(module, "ROWS", 4)
    parts = list(weight_rows(past.triu() * ONE, after * ONE, 0.5))
    assert [len(part) for part in parts] == [4, 4, 3]
    torch.testing.assert_close(torch.cat(parts), whole)


def test_sums_that_cannot_be_inverted_are_refused():
    bad = torch.tensor([[0, 5], [5, 0]])
    with pytest.raises(ConfigError, match=r"^the item-item sums with lam=0.5 cannot be inverted; raise lam\.$"):
        weights(bad, bad, 0.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [2, 1024])
def test_whole_numbers_become_floating_ones_in_their_own_memory(monkeypatch, dtype, rows):
    monkeypatch.setattr(ordered_weights, "ROWS", rows)
    numbers = torch.tensor([[ONE, -ONE // 2, 3], [5 * ONE, 0, 7], [1, 2, 2**40]])
    expected, memory = numbers.double() / ONE, numbers.data_ptr()
    found = in_place(numbers, dtype)
    assert (found.dtype, found.data_ptr(), found.shape) == (dtype, memory, (3, 3))
    assert torch.equal(found.double(), expected)


@pytest.mark.parametrize("rows", [2, 1024])
@pytest.mark.parametrize(("share", "dtype"), [(1.001, torch.float32), (0.999, torch.float64)])
def test_the_precise_solver_is_taken_beyond_a_condition_number(monkeypatch, share, dtype, rows):
    """The largest sum of absolute values of a row of A is 4 + 2 + 1 + 3 = 10, read from its upper triangle."""
    monkeypatch.setattr(ordered_weights, "ROWS", rows)
    upper = torch.tensor([[1, -2, 0, 1], [0, 4, 1, -3], [0, 0, 2, 1], [0, 0, 0, 5]]) * ONE
    assert precision(upper, share * 10 / (SINGLE - 1)) == dtype


def test_no_items_need_no_precise_solver():
    none = torch.zeros(0, 0, dtype=torch.int64)
    assert precision(none, 1.0) == torch.float32
