import numpy as np
import pytest
import torch

from fedrec.parts.symmetric import pack, positive_part, top_eigenpairs, unpack


@pytest.fixture(scope="module")
def x() -> torch.Tensor:
    return torch.from_numpy((np.random.default_rng(0).random((50, 20)) < 0.3).astype(np.float64))


def test_packing_keeps_a_symmetric_matrix(x):
    counts = x.T @ x
    packed = pack([counts[:7], counts[7:8], counts[8:]])
    assert packed.shape == (20 * 21 // 2,)
    assert torch.equal(unpack(packed, 20), counts)


def test_positive_part_drops_negative_eigenvalues():
    square = torch.diag(torch.tensor([2.0, -1.0, 3.0]))
    assert torch.allclose(positive_part(square), torch.diag(torch.tensor([2.0, 0.0, 3.0])), atol=1e-6)


def test_eigenpairs_are_the_largest(x):
    counts = x.T @ x
    values, vectors = top_eigenpairs(counts, 3)
    expected = torch.linalg.eigvalsh(counts).flip(0)[:3]
    assert torch.allclose(values, expected, rtol=1e-3)
    assert torch.allclose(counts @ vectors[:, :1], vectors[:, :1] * values[0], atol=1e-4 * float(values[0]))
    whole, basis = top_eigenpairs(counts, 20)
    assert torch.allclose((basis * whole) @ basis.T, counts, atol=1e-10)
