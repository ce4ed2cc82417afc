import numpy as np
import pytest
import torch

from fedrec.errors import ConfigError
from fedrec.parts import gram as g
from fedrec.parts import inverse, symmetric


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


@pytest.mark.parametrize("numbers", [1, 60, 1 << 28])
def test_the_way_of_a_gpu_counts_the_same_in_any_blocks(x, monkeypatch, numbers):
    """Of twenty items: one user at a time, three, or all at once."""
    monkeypatch.setattr(g, "DENSE", numbers)
    owners, items = x[:-3].nonzero(as_tuple=True)
    ones, values = torch.ones(len(items)), torch.rand(len(items))
    with torch.device("meta"):  # another default device, on which nothing must be made
        found, scaled = g._dense(owners, items, 20, ones), g._dense(owners, items, 20, values)
    assert torch.equal(found, g.gram(owners, items, 20))
    torch.testing.assert_close(scaled, g.gram(owners, items, 20, values))
    none = torch.zeros(0, dtype=torch.int64)
    assert not g._dense(none, none, 4, torch.zeros(0)).any()


def weights(counts, lam):
    return torch.cat(list(g.ease_rows(counts.clone(), lam)))


def test_nobody_gives_zero_counts():
    none = torch.zeros(0, dtype=torch.int64)
    assert torch.equal(g.gram(none, none, 4), torch.zeros(4, 4))


def test_weights_are_the_constrained_optimum(x):
    b = weights(x.T @ x, 3.0)
    assert torch.equal(b.diagonal(), torch.zeros(20, dtype=torch.float64))
    gradient = -x.T @ (x - x @ b) + 3.0 * b
    assert float((gradient - gradient.diag().diag()).abs().max()) < 1e-8
    assert float(gradient.diagonal().abs().max()) > 1e-3, "only the diagonal is constrained"


def test_permuted_items_give_permuted_weights(x):
    order = torch.randperm(20, generator=torch.Generator().manual_seed(0))
    b = weights(x.T @ x, 3.0)
    permuted = x[:, order]
    assert torch.allclose(weights(permuted.T @ permuted, 3.0), b[order][:, order], atol=1e-12)


def test_blocks_of_rows_do_not_change_the_counts_or_the_weights(x, monkeypatch):
    owners, items = x.nonzero(as_tuple=True)
    counts, found = g.gram(owners, items, 20), weights(x.T @ x, 3.0)
    for module in (g, inverse, symmetric):
        monkeypatch.setattr(module, "ROWS", 7)
    assert [len(rows) for rows in g.gram_rows(owners, items, 20)] == [7, 7, 6]
    assert torch.equal(g.gram(owners, items, 20), counts)
    assert torch.allclose(weights(x.T @ x, 3.0), found, atol=1e-12)


def test_counts_that_cannot_be_inverted_are_refused():
    with pytest.raises(ConfigError, match="raise lam"):
        weights(torch.tensor([[0.0, 5.0], [5.0, 0.0]]), 1.0)


def test_matrices_must_fit_what_is_allowed_or_free(monkeypatch):
    need, cpu = 4 * 4 * 1000**2, torch.device("cpu")
    g.check_square("mine", 1000, cpu, need / 1e9, "filter the data", per_entry=16)
    with pytest.raises(ConfigError) as error:
        g.check_square("mine", 1000, cpu, 0.0159, "filter the data", per_entry=16)
    assert str(error.value) == (
        "mine needs about 0.016 GB for matrices of 1000 x 1000 items, but 0.0159 GB are allowed; filter the data."
    )
    monkeypatch.setattr(g, "available", lambda device: need - 1)
    with pytest.raises(ConfigError, match=r"but 0.016 GB are free on cpu; filter the data\.$"):
        g.check_square("mine", 1000, cpu, None, "filter the data", per_entry=16)
    monkeypatch.setattr(g, "available", lambda device: need)
    g.check_square("mine", 1000, cpu, None, "filter the data", per_entry=16)


def test_scaled_rows_have_length_one(x):
    counts = x.sum(1).long()
    scale = g.row_scale(counts)
    assert scale.dtype == torch.float32
    lengths = (x * scale[:, None]).square().sum(1)
    assert torch.allclose(lengths[counts > 0], torch.ones(1, dtype=torch.float64))
    assert g.row_scale(torch.tensor([0, 4])).tolist() == [1.0, 0.5]


@pytest.mark.parametrize(("share", "dtype"), [(1.001, torch.float32), (0.999, torch.float64)])
def test_the_precise_solver_is_taken_beyond_a_condition_number(share, dtype):
    """Eigenvalues are at most the largest sum of a row, here 6, plus lambda, and at least lambda."""
    counts = torch.tensor([[4.0, -2.0], [-2.0, 2.0]])
    assert g.ease_dtype(counts, share * 6 / (inverse.SINGLE - 1)) == dtype


def test_no_items_have_no_weights():
    assert g.ease_dtype(torch.zeros(0, 0), 1.0) == torch.float32
    assert list(g.ease_rows(torch.zeros(0, 0), 1.0)) == []
