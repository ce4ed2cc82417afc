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


def test_counts_that_cannot_be_inverted_are_refused():
    with pytest.raises(ConfigError, match="raise lam"):
        g.inverse(torch.tensor([[0.0, 5.0], [5.0, 0.0]]), 1.0)
