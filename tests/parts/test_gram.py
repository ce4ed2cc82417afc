import numpy as np
import pytest
import torch

from fedrec.errors import ConfigError
from fedrec.parts import gram as g


@pytest.fixture(scope="module")
def x() -> torch.Tensor:
    return torch.from_numpy((np.random.default_rng(0).random((50, 20)) < 0.3).astype(np.float64))


def test_counts_equal_the_matrix_product(x):
    owners, items = x.nonzero(as_tuple=True)
    assert torch.equal(g.gram(owners, items, 20).long(), x.T.long() @ x.long())
    assert torch.equal(g.gram(owners, items, 20).diagonal(), x.sum(0).float()), "the diagonal is the popularity"
    values = torch.rand(len(items))
    scaled = x.clone()
    scaled[owners, items] = values.double()
    assert torch.allclose(g.gram(owners, items, 20, values).double(), scaled.T @ scaled, atol=1e-5)


def test_nobody_gives_zero_counts():
    none = torch.zeros(0, dtype=torch.int64)
    assert torch.equal(g.gram(none, none, 4), torch.zeros(4, 4))


def test_weights_are_the_constrained_optimum(x):
    b = g.ease_weights(x.T @ x, 3.0, torch.float64)
    assert torch.equal(b.diagonal(), torch.zeros(20, dtype=torch.float64))
    gradient = -x.T @ (x - x @ b) + 3.0 * b
    assert float((gradient - gradient.diag().diag()).abs().max()) < 1e-8
    assert float(gradient.diagonal().abs().max()) > 1e-3, "only the diagonal is constrained"


def test_permuted_items_give_permuted_weights(x):
    order = torch.randperm(20, generator=torch.Generator().manual_seed(0))
    b = g.ease_weights(x.T @ x, 3.0, torch.float64)
    permuted = x[:, order]
    assert torch.allclose(g.ease_weights(permuted.T @ permuted, 3.0, torch.float64), b[order][:, order], atol=1e-12)


def test_precision_follows_the_condition_number(x):
    counts = (x.T @ x).float()
    exact = g.inverse(counts, 1e-3, torch.float64)
    assert g.inverse(counts, 1e-3).dtype == torch.float64
    assert g.inverse(counts, 10.0).dtype == torch.float32
    assert torch.equal(g.inverse(counts, 1e-3), exact)
    assert torch.allclose(g.ease_weights(counts, 10.0).double(), g.ease_weights(counts, 10.0, torch.float64), atol=1e-5)


def test_joining_and_leaving_update_the_inverse(x):
    p = g.inverse(x.T @ x, 2.0, torch.float64)
    fresh = torch.zeros(20, dtype=torch.float64)
    fresh[[1, 5, 7]] = 1
    joined = g.add_user(p, fresh)
    everybody = torch.cat([x, fresh[None]])
    assert torch.allclose(joined, g.inverse(everybody.T @ everybody, 2.0, torch.float64), atol=1e-10)
    assert float((g.remove_user(joined, fresh) - p).abs().max()) < 1e-8
    grown = x.clone()
    grown[4] = torch.maximum(x[4], fresh)
    assert not torch.equal(grown, x)
    expected = g.inverse(grown.T @ grown, 2.0, torch.float64)
    assert torch.allclose(g.replace_user(p, x[4], grown[4]), expected, atol=1e-10)


def test_packing_keeps_a_symmetric_matrix(x):
    counts = x.T @ x
    packed = g.pack(counts)
    assert packed.shape == (20 * 21 // 2,)
    assert torch.equal(g.unpack(packed, 20), counts)


def test_positive_part_drops_negative_eigenvalues():
    square = torch.diag(torch.tensor([2.0, -1.0, 3.0]))
    assert torch.allclose(g.positive_part(square), torch.diag(torch.tensor([2.0, 0.0, 3.0])), atol=1e-6)


def test_eigenpairs_are_the_largest(x):
    counts = x.T @ x
    values, vectors = g.top_eigenpairs(counts, 3)
    expected = torch.linalg.eigvalsh(counts).flip(0)[:3]
    assert torch.allclose(values, expected, rtol=1e-3)
    assert torch.allclose(counts @ vectors[:, :1], vectors[:, :1] * values[0], atol=1e-4 * float(values[0]))
    whole, basis = g.top_eigenpairs(counts, 20)
    assert torch.allclose((basis * whole) @ basis.T, counts, atol=1e-10)


def test_counts_that_cannot_be_inverted_are_refused():
    with pytest.raises(ConfigError, match="raise lam"):
        g.inverse(torch.tensor([[0.0, 5.0], [5.0, 0.0]]), 1.0)
