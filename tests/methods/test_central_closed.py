import numpy as np
import pytest
import torch

import fedrec
from fedrec.errors import ConfigError
from fedrec.federation.trainer import Setup
from fedrec.methods.central.ease import EASE
from fedrec.methods.central.ials import IALS
from fedrec.methods.central.itemknn import ItemKNN
from fedrec.methods.central.observed import Observed
from fedrec.testing import MethodSuite

CPU = torch.device("cpu")


class TestEASE(MethodSuite):
    method = EASE
    options = {"lam": 100}
    rounds = 1
    floor = 0.66
    deterministic = True
    federated = False


class TestItemKNN(MethodSuite):
    method = ItemKNN
    rounds = 1
    floor = 0.66
    deterministic = True
    federated = False


class TestIALS(MethodSuite):
    method = IALS
    options = {"dim": 16}
    rounds = 8
    floor = 0.6
    federated = False


def dense(view):
    x = np.zeros((view.n_clients, view.n_items))
    x[view.positives.owners, view.positives.values] = 1
    return torch.from_numpy(x)


def solved(method, view):
    trainer = method.trainer(view, Setup(0))
    trainer.round(0)
    return trainer


def test_ease_scores_are_history_times_weights(small):
    trainer = solved(EASE(lam=20), small.training)
    x = dense(small.training)
    p = torch.linalg.inv(x.T @ x + 20 * torch.eye(x.shape[1], dtype=torch.float64))
    weights = torch.eye(x.shape[1], dtype=torch.float64) - p / p.diagonal()
    found = trainer.scores(torch.tensor([3, 17, 0]))
    assert torch.allclose(found.double(), (x @ weights)[[3, 17, 0]], atol=1e-5)


def test_normalised_rows_count_by_one_over_their_length(small):
    x = dense(small.training)
    x = x / x.sum(1, keepdim=True).sqrt()
    p = torch.linalg.inv(x.T @ x + 0.5 * torch.eye(x.shape[1], dtype=torch.float64))
    weights = solved(EASE(lam=0.5, normalise=True), small.training).model["weights"]
    assert torch.allclose(weights.double() + p / p.diagonal(), torch.eye(x.shape[1], dtype=torch.float64), atol=1e-5)


def test_item_neighbours_equal_brute_force(small):
    trainer = solved(ItemKNN(k=3, shrink=2), small.training)
    x = dense(small.training)
    counts = x.T @ x
    similar = counts / ((counts.diag()[:, None] * counts.diag()).sqrt() + 2)
    similar.fill_diagonal_(0)
    near = similar >= similar.topk(3, dim=0).values[-1]
    assert int(near.sum(0).min()) == 3  # and more where some tie for the third place
    assert torch.allclose(trainer.model["weights"].double(), similar * near, atol=1e-6)
    assert torch.allclose(trainer.scores(torch.tensor([5]))[0].double(), x[5] @ (similar * near), atol=1e-6)


def test_als_sweep_solves_every_user_exactly(small):
    method = IALS(dim=5, alpha=0.2, reg=0.01, nu=0.5)
    data = Observed(small.training, CPU)
    items = torch.randn(data.n_items, 5)
    users = method._solve(items, data.pair_items, data.counts).double()
    x, q = dense(small.training), items.double()
    size = x.sum(1) + 0.2 * data.n_items
    # Gradient of sum x (p.q - 1)^2 + alpha sum (p.q)^2 + reg size^nu |p|^2.
    cells = users @ q.T
    gradient = (x * (cells - 1)) @ q + 0.2 * cells @ q + 0.01 * size[:, None] ** 0.5 * users
    assert float(gradient.abs().max()) < 1e-3
    assert float(users.abs().max()) > 0.01


def test_large_catalogues_are_refused_with_the_number(small):
    with pytest.raises(ConfigError, match=r"ease needs about 5.\d+e-05 GB .* 60 x 60 items, but 1e-06 GB are allowed"):
        solved(EASE(memory_gb=1e-6), small.training)


@pytest.mark.parametrize(
    ("data", "options", "lam", "hr", "ndcg"),
    [("ml-100k", {}, 500, 0.648, 0.378), ("filmtrust", {"untimed": "item"}, 500, 0.69, 0.55)],
)
def test_ease_reproduces_known_values(real_data, data, options, lam, hr, ndcg):
    split = fedrec.HONEST.with_options(**options).split(real_data(data), seed=0)
    found = fedrec.train(EASE(lam=lam), split, device="cpu", progress=False).test["sampled"]
    assert found["hr@10"] == pytest.approx(hr, abs=0.02)
    assert found["ndcg@10"] == pytest.approx(ndcg, abs=0.02)
