import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from fedrec.methods.fedem.similarity import principal_scores, project_simplex, similarities, simplex_weights
from fedrec.parts.tables import inner_products, mix


def solve(objective, n):
    """Minimise a convex function on the simplex with a general solver."""
    found = minimize(
        objective,
        np.full(n, 1 / n),
        bounds=[(0, 1)] * n,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    return found.x


@pytest.mark.parametrize("seed", range(5))
def test_both_closed_forms_agree_with_a_general_solver(seed):
    rng = np.random.default_rng(seed)
    n, alpha = 7, float(rng.uniform(0.1, 2))
    p = rng.dirichlet(np.ones(n))
    sigma = rng.uniform(0, 1, n)
    weights = {
        form: simplex_weights(torch.tensor(sigma)[None], torch.tensor(p), alpha, form)[0].numpy()
        for form in ("scaled", "unscaled")
    }
    scaled = solve(lambda w: ((w - p) ** 2).sum() + alpha * ((w - sigma) ** 2).sum(), n)
    unscaled = solve(lambda w: w @ w - 2 * (alpha * sigma + p) @ w, n)
    np.testing.assert_allclose(weights["scaled"], scaled, atol=1e-5)
    np.testing.assert_allclose(weights["unscaled"], unscaled, atol=1e-5)


def test_projection_is_on_the_simplex_idempotent_and_shift_invariant():
    rows = torch.randn(50, 9, dtype=torch.float64)
    found = project_simplex(rows)
    assert torch.allclose(found.sum(1), torch.ones(50, dtype=torch.float64))
    assert bool((found >= 0).all())
    assert torch.allclose(project_simplex(found), found)
    assert torch.allclose(project_simplex(rows + 3.7), found)


@pytest.mark.parametrize("spread", [0.01, 1, 100])
def test_projection_is_that_by_sorting(spread, monkeypatch):
    """Where all entries stay, some do, or one does; and whatever the block of rows."""
    rows = spread * torch.randn(40, 30, dtype=torch.float64)
    ordered = rows.sort(dim=1, descending=True).values
    excess = ordered.cumsum(1) - 1
    index = torch.arange(1, 31)
    support = (ordered * index > excess).sum(1, keepdim=True)
    expected = (rows - excess.gather(1, support - 1) / support).clamp(min=0)
    assert torch.allclose(project_simplex(rows), expected, atol=1e-12)
    monkeypatch.setattr("fedrec.methods.fedem.similarity.BLOCK", 7 * 30)
    assert torch.allclose(project_simplex(rows), expected, atol=1e-12)


def test_identities_of_the_card():
    n = 5
    p = torch.tensor([0.1, 0.2, 0.3, 0.25, 0.15])
    any_sigma = torch.rand(n, n)
    for form in ("scaled", "unscaled"):
        assert torch.allclose(simplex_weights(any_sigma, p, 0.0, form), p.expand(n, n)), "alpha = 0 is FedAvg by size"
    constant = torch.full((n, n), 0.4)
    assert torch.allclose(simplex_weights(constant, p, 0.9, "unscaled"), p.expand(n, n), atol=1e-6)
    assert torch.allclose(simplex_weights(constant, p, 0.9, "scaled"), ((p + 0.9 / n) / 1.9).expand(n, n), atol=1e-6)
    eye = torch.eye(n)
    expected = (p.expand(n, n) + 0.9 * eye) / 1.9
    assert torch.allclose(simplex_weights(eye, p, 0.9, "scaled"), expected, atol=1e-6)
    uniform = torch.full((n,), 1 / n)
    own = simplex_weights(eye, uniform, 0.9, "unscaled")
    assert torch.allclose(own.diagonal(), torch.full((n,), 0.9 + 0.1 / n), atol=1e-6)
    assert torch.allclose(simplex_weights(eye, uniform, 1.0, "unscaled"), eye, atol=1e-6), "no exchange at all"


def test_gram_and_mix_do_not_depend_on_how_tables_are_cut():
    tables = torch.randn(9, 6, 4)
    cuts = [tables[:2], tables[2:3], tables[3:]]
    flat = tables.flatten(1)
    assert torch.allclose(inner_products([c.flatten(1) for c in cuts]), flat @ flat.T, atol=1e-5)
    weights = torch.rand(9, 9)
    assert torch.allclose(mix(weights, cuts), torch.einsum("uv,vmd->umd", weights, tables), atol=1e-5)


def test_principal_scores_equal_the_svd():
    tables = torch.randn(3, 40, 5)
    found = principal_scores(tables)
    for table, scores in zip(tables, found, strict=True):
        centred = table - table.mean(0)
        first = torch.linalg.svd(centred, full_matrices=False).Vh[0]
        assert torch.allclose(scores.abs(), (centred @ first).abs(), atol=1e-4)
    nearly = tables + 1e-4 * torch.randn_like(tables)
    assert (principal_scores(nearly) - found).abs().max() < 0.1, "the fixed sign keeps like tables alike"


def test_similarity_forms():
    tables = torch.randn(4, 10, 3)
    apart = torch.cdist(tables.flatten(1), tables.flatten(1))
    squared = similarities([tables], "table", "squared", snap=None)
    assert torch.allclose(squared, 1 / (1 + apart**2), atol=1e-4)
    plain = similarities([tables], "table", "plain", snap=None)
    assert torch.allclose(plain, 1 / (1 + apart), atol=2e-3)
    assert bool((squared.diagonal() == 1).all())
    twins = torch.cat([tables[:1], tables[:1] + 1e-3])
    assert bool((similarities([twins], "pca1", "plain", snap=0.9) == 1).all())
    cosine = similarities([tables], "cosine", "plain", snap=None)
    assert bool(((cosine >= 0) & (cosine <= 1 + 1e-6)).all())
