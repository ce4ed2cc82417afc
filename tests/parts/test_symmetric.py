import numpy as np
import pytest
import torch

from fedrec.parts import symmetric
from fedrec.parts.symmetric import mirror_, pack, positive_part, top_eigenpairs, unpack


@pytest.fixture(scope="module")
def x() -> torch.Tensor:
    return torch.from_numpy((np.random.default_rng(0).random((50, 20)) < 0.3).astype(np.float64))


def test_packing_keeps_a_symmetric_matrix(x):
    counts = x.T @ x
    packed = pack([counts[:7], counts[7:8], counts[8:]])
    assert packed.shape == (20 * 21 // 2,)
    assert torch.equal(unpack(packed, 20), counts)


def test_a_packed_matrix_is_its_upper_triangle_row_by_row():
    square = torch.tensor([[1, 2, 3], [2, 4, 5], [3, 5, 6]])
    assert pack([square[:2], square[2:]]).tolist() == [1, 2, 3, 4, 5, 6]
    found = unpack(torch.tensor([1, 2, 3, 4, 5, 6]), 3, torch.float64)
    assert found.dtype == torch.float64
    assert found.tolist() == square.tolist()
    assert unpack(torch.tensor([1, 2, 3, 4, 5, 6]), 3).dtype == torch.int64


@pytest.mark.parametrize("rows", [1, 3, 20, 1024])
def test_a_mirrored_matrix_has_its_upper_triangle_below_too_in_its_own_memory(monkeypatch, rows):
    monkeypatch.setattr(symmetric, "ROWS", rows)
    square = torch.randn(20, 20, generator=torch.Generator().manual_seed(0))
    expected = square.triu() + square.triu(1).T
    found = mirror_(square)
    assert found.data_ptr() == square.data_ptr()
    assert torch.equal(square, expected)


def test_a_packed_matrix_is_unpacked_where_it_lies():
    """Another default device is not where it is made."""
    with torch.device("meta"):
        assert unpack(torch.tensor([1.0, 2.0, 3.0], device="cpu"), 2).tolist() == [[1, 2], [2, 3]]


def test_positive_part_drops_negative_eigenvalues():
    square = torch.diag(torch.tensor([2.0, -1.0, 3.0]))
    assert torch.allclose(positive_part(square), torch.diag(torch.tensor([2.0, 0.0, 3.0])), atol=1e-6)


def test_positive_part_keeps_the_eigenvectors():
    """[[1, 2], [2, 1]] has the eigenvalues 3 and -1; what is left is 3/2 everywhere."""
    found = positive_part(torch.tensor([[1.0, 2.0], [2.0, 1.0]]))
    torch.testing.assert_close(found, torch.full((2, 2), 1.5))
    torch.testing.assert_close(positive_part(found), found)


def test_eigenpairs_are_the_largest(x):
    counts = x.T @ x
    values, vectors = top_eigenpairs(counts, 3)
    expected = torch.linalg.eigvalsh(counts).flip(0)[:3]
    assert torch.allclose(values, expected, rtol=1e-3)
    assert torch.allclose(counts @ vectors[:, :1], vectors[:, :1] * values[0], atol=1e-4 * float(values[0]))
    whole, basis = top_eigenpairs(counts, 20)
    assert torch.allclose((basis * whole) @ basis.T, counts, atol=1e-10)


def test_eigenpairs_of_many_items_are_found_by_a_few_products():
    """200 items, of which 16 more directions than asked for are looked at: far fewer than all."""
    basis = torch.linalg.qr(torch.randn(200, 200, generator=torch.Generator().manual_seed(1), dtype=torch.float64)).Q
    values = 0.9 ** torch.arange(200, dtype=torch.float64)
    square = (basis * values) @ basis.T
    found, vectors = top_eigenpairs(square, 4)
    assert (found.shape, vectors.shape) == ((4,), (200, 4))
    assert torch.allclose(found, values[:4], rtol=1e-6)
    assert torch.allclose(vectors.T @ vectors, torch.eye(4, dtype=torch.float64), atol=1e-10)
    for own, vector in zip(basis.T, vectors.T, strict=False):
        assert abs(float(own @ vector)) == pytest.approx(1, abs=1e-3)
    torch.manual_seed(7)
    again, _ = top_eigenpairs(square, 4, steps=1)
    torch.manual_seed(8)
    assert torch.equal(top_eigenpairs(square, 4, steps=1)[0], again), "the start is fixed"
    rough, _ = top_eigenpairs(square, 4, steps=0)
    assert not torch.allclose(rough, found, rtol=1e-3)
    assert top_eigenpairs(square.float(), 4)[0].dtype == torch.float32
