import pytest
import torch
from torch import Tensor

from fedrec.methods.fedcia.alignment import alignment, eigenpairs, gram_product, residual
from fedrec.methods.fedcia.graph_filter import low_pass, normalised

C, M, D = 6, 40, 4


def tables(seed: int = 0, c: int = C) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(1, M, D, generator=draw) * 0.5 + torch.randn(c, M, D, generator=draw) * 0.1


def mean_of(items: Tensor, rank: int = M, test: Tensor | None = None) -> tuple[Tensor, Tensor]:
    products = [gram_product(part, test) for part in items.split(4)]
    return eigenpairs(torch.stack(products).sum(0).double() / len(items), test, rank)


def whole(items: Tensor) -> Tensor:
    return (items @ items.mT).mean(0)


def distance(items: Tensor, g: Tensor) -> Tensor:
    return (items @ items.mT - g).flatten(1).norm(dim=1)


def by_autograd(items: Tensor, g: Tensor, steps: int, lr: float, decay: float, kind: str) -> Tensor:
    items, g = items.double(), g.double()
    for _ in range(steps):
        own = items.clone().requires_grad_()
        error = own @ own.mT - g
        loss = error.flatten(1).norm(dim=1) if kind == "norm" else error.square().mean((1, 2))
        (gradient,) = torch.autograd.grad(loss.sum(), own)
        items = items - lr * (gradient + decay * items)
    return items.float()


@pytest.mark.parametrize(("kind", "lr"), [("norm", 0.01), ("mse", 5.0)])
@pytest.mark.parametrize("steps", [1, 7])
def test_closed_form_equals_autograd(kind: str, lr: float, steps: int) -> None:
    items = tables()
    vectors, values = mean_of(items)
    w, y = alignment(items, vectors, values, steps=steps, lr=lr, weight_decay=0.01, distance=kind)
    expected = by_autograd(items, whole(items), steps, lr, 0.01, kind)
    assert torch.allclose(items @ w + vectors @ y, expected, atol=2e-5)
    assert not torch.allclose(items, expected, atol=1e-3)


def test_low_rank_form_is_exact_for_the_truncated_matrix() -> None:
    """The part of E outside the eigenvectors only gets multiplied from the right, and that is followed exactly."""
    items = tables()
    vectors, values = mean_of(items, rank=3)
    w, y = alignment(items, vectors, values, steps=5, lr=0.01)
    expected = by_autograd(items, (vectors * values) @ vectors.T, 5, 0.01, 0.0, "norm")
    assert torch.allclose(items @ w + vectors @ y, expected, atol=2e-5)


def test_norm_closed_form() -> None:
    items, g = tables(), whole(tables(seed=1))
    overlap = (items * (g @ items)).sum((1, 2))
    found = residual(items.mT @ items, overlap, g.double().square().sum()).sqrt()
    assert torch.allclose(found.float(), distance(items, g), rtol=1e-4)


@pytest.mark.parametrize("clients", [1, 5])
def test_equal_clients_rest(clients: int) -> None:
    items = tables(c=1).expand(clients, -1, -1)
    vectors, values = mean_of(items)
    w, y = alignment(items, vectors, values, steps=10, lr=0.1, weight_decay=0.01)
    assert torch.equal(w, torch.eye(D).expand(clients, D, D))
    assert float(y.abs().max()) == 0


def test_rotations_leave_the_mean_unchanged() -> None:
    items = tables()
    turns = torch.linalg.qr(torch.randn(C, D, D, generator=torch.Generator().manual_seed(5)))[0]
    for one, other in ((items, items @ turns),):
        (v, a), (u, b) = mean_of(one), mean_of(other)
        assert torch.allclose((v * a) @ v.T, (u * b) @ u.T, atol=1e-5)


def test_a_small_step_lowers_the_distance() -> None:
    items = tables()
    vectors, values = mean_of(items)
    w, y = alignment(items, vectors, values, steps=1, lr=1e-3)
    assert bool((distance(items @ w + vectors @ y, whole(items)) < distance(items, whole(items))).all())


def test_mean_is_exact_without_a_sketch_and_for_low_rank_with_one() -> None:
    items = tables(c=2)  # rank 8 at most
    g = whole(items)
    vectors, values = mean_of(items)
    assert torch.allclose((vectors * values) @ vectors.T, g, atol=1e-5)
    test = torch.linalg.qr(torch.randn(M, 12, generator=torch.Generator().manual_seed(2)))[0]
    vectors, values = mean_of(items, rank=10, test=test)
    assert vectors.shape == (M, 10)
    assert torch.allclose((vectors * values) @ vectors.T, g, atol=1e-4)
    assert torch.allclose(vectors.T @ vectors, torch.eye(10), atol=1e-5)


def test_whole_matrix_can_be_noisy() -> None:
    items = tables()
    noise = torch.randn(M, M, generator=torch.Generator().manual_seed(3)).double()
    vectors, values = eigenpairs(gram_product(items, None).double() / len(items), None, M, noise)
    assert torch.allclose((vectors * values) @ vectors.T, whole(items) + ((noise + noise.T) / 2).float(), atol=1e-4)


def test_low_pass_is_the_projector_on_the_row_space() -> None:
    """k = rank: V' V projects on the rows of R~; vectors beyond the rank are left out."""
    draw = torch.Generator().manual_seed(0)
    silo = (torch.rand(3, 5, 30, generator=draw) < 0.3).float()
    silo[:, 4] = silo[:, 3]  # rank 4 of 5 users
    matrix = normalised(silo)
    assert torch.allclose(matrix[0, 0], silo[0, 0] / (silo[0, 0].sum() * silo[0].sum(0).clamp(min=1)).sqrt())
    vectors = low_pass(matrix, 5)
    projector = vectors.mT @ vectors
    assert torch.allclose(projector @ projector, projector, atol=1e-4)
    assert torch.allclose(matrix @ projector, matrix, atol=1e-4)
    assert torch.allclose(projector.diagonal(dim1=1, dim2=2).sum(1), torch.full((3,), 4.0), atol=1e-3)
    assert low_pass(matrix, 2).shape == (3, 2, 30)


def test_empty_rows_and_columns_stay_empty() -> None:
    silo = torch.zeros(1, 2, 4)
    silo[0, 0, 1] = 1
    assert torch.equal(normalised(silo), silo)
    assert bool(torch.isfinite(low_pass(normalised(silo), 2)).all())
