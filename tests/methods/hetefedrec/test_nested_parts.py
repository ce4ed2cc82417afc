"""Decorrelation, distillation, padding, sizes and base models of clients of different size."""

import pytest
import torch

from fedrec.errors import ConfigError
from fedrec.federation.payload import RowUpdate, Upload
from fedrec.federation.total import Total
from fedrec.local.mlp import FlatMLP, kaiming
from fedrec.methods.hetefedrec import decorrelation, distillation, models
from fedrec.methods.hetefedrec import sizes as nested_sizes
from fedrec.methods.hetefedrec.padding import PaddedSum, add_sized


def rng() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def test_decorrelation_gradient_is_autograds() -> None:
    mixed = torch.randn(50, 6, generator=rng(), dtype=torch.float64) @ torch.randn(6, 6, generator=rng()).double()
    table = (0.01 * mixed + 0.3).requires_grad_()
    (expected,) = torch.autograd.grad(decorrelation.penalty(table), table)
    found = decorrelation.penalty_gradient(table.detach())
    assert torch.allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert found.abs().max() > 1e-3


def test_decorrelation_eigenvalue_identity() -> None:
    table = torch.randn(40, 5, generator=rng(), dtype=torch.float64) @ torch.randn(5, 5, generator=rng()).double()
    k = decorrelation.correlation(table)
    values = torch.linalg.eigvalsh(k)
    assert values.sum().item() == pytest.approx(5, abs=1e-6)
    assert (values - 1).square().sum().item() == pytest.approx(k.square().sum().item() - 5, abs=1e-6)


def test_decorrelation_scale_is_between_one_over_n_and_one() -> None:
    one = torch.randn(4000, 1, generator=rng())
    assert decorrelation.penalty(one.expand(-1, 8)).item() == pytest.approx(1, abs=1e-4)
    free = decorrelation.penalty(torch.randn(4000, 8, generator=rng()))
    assert free.item() == pytest.approx(1 / 8, abs=2e-3)
    batch = torch.stack([one.expand(-1, 8), torch.randn(4000, 8, generator=rng())])
    assert torch.allclose(decorrelation.penalty(batch)[1], free)


def test_spectrum_sees_collapse() -> None:
    free = decorrelation.spectrum(torch.randn(500, 4, generator=rng()))
    flat = decorrelation.spectrum(torch.randn(500, 1, generator=rng()).expand(-1, 4))
    assert free["effective_rank"] == pytest.approx(4, abs=0.1)
    assert flat["effective_rank"] == pytest.approx(1, abs=0.01)
    assert flat["variance"] > 0


@pytest.mark.parametrize("relation", ["cosine", "euclidean"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_distillation_brings_relations_together(relation: str, optimizer: str) -> None:
    tables = [torch.randn(30, n, generator=rng()) for n in (2, 4, 8)]
    items = torch.arange(0, 30, 3)

    def apart(found: list[torch.Tensor]) -> float:
        d = torch.stack([distillation.relations(table[items], relation) for table in found])
        return float((d - d.mean(0)).square().mean())

    lr = 1.0 if optimizer == "sgd" else 0.01
    moved = distillation.distil(tables, items, lr=lr, steps=10, optimizer=optimizer, relation=relation)
    assert apart(moved) < 0.9 * apart(tables)
    others = torch.ones(30, dtype=torch.bool)
    others[items] = False
    assert all(torch.equal(a[others], b[others]) for a, b in zip(moved, tables, strict=True))


@pytest.mark.parametrize("relation", ["cosine", "euclidean"])
def test_a_distillation_step_is_its_definition(relation: str) -> None:
    """Section 6 of the card: the mean over sizes, held constant, is the target; the loss is the mean over pairs."""
    tables = [torch.randn(10, n, generator=rng(), dtype=torch.float64) for n in (2, 4, 8)]
    items = torch.tensor([1, 4, 5, 8])

    def between(rows: torch.Tensor) -> torch.Tensor:
        def one(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            if relation == "cosine":
                return a @ b / (a.norm() * b.norm())
            return (a - b + 1e-12).norm()

        return torch.stack([torch.stack([one(a, b) for b in rows]) for a in rows])

    target = sum(between(table[items]) for table in tables) / 3
    moved = distillation.distil(tables, items, lr=0.7, relation=relation)
    for table, found in zip(tables, moved, strict=True):
        rows = table[items].clone().requires_grad_()
        (between(rows) - target).square().mean().backward()
        assert torch.allclose(found[items], table[items] - 0.7 * rows.grad, atol=1e-6)
        assert float(rows.grad.abs().max()) > 1e-3


def test_distillation_leaves_equal_relations_alone() -> None:
    table = torch.randn(12, 3, generator=rng())
    wide = torch.cat([table, torch.zeros(12, 2)], 1)
    moved = distillation.distil([table, wide], torch.arange(12), lr=1.0)
    assert torch.allclose(moved[0], table, atol=1e-6)
    assert torch.allclose(moved[1], wide, atol=1e-6)


def test_drawn_items_depend_on_seed_and_round_alone() -> None:
    draws = [
        distillation.draw_items(100, 0.1, seed, number, torch.device("cpu"))
        for seed, number in ((0, 0), (0, 0), (0, 1), (1, 0))
    ]
    assert len(draws[0]) == len(set(draws[0].tolist())) == 10
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert not torch.equal(draws[0], draws[3])


def changes(clients: int, columns: int, seed: int) -> tuple[Upload, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    counts = torch.randint(1, 5, (clients,), generator=generator)
    rows = torch.stack([torch.randperm(9, generator=generator)[:4].sort().values for _ in range(clients)]).int()
    values = torch.randn(clients, 4, columns, generator=generator)
    values[torch.arange(4) >= counts[:, None]] = 0
    update = RowUpdate(rows, counts, values, 9)
    return Upload(torch.arange(clients), torch.ones(clients), {"items": update}), update.dense()


def padded_sum(sums: Total, sizes: tuple[int, ...]) -> PaddedSum:
    return PaddedSum(sums, "items", sizes, 9, torch.device("cpu"))


def test_padded_sum_is_zero_padding_and_slicing() -> None:
    sizes = (2, 3, 5)
    sums, padded = Total(), torch.zeros(9, 5)
    for place, size in enumerate(sizes):
        upload, dense = changes(3 + place, size, place)
        add_sized(sums, place, upload, "items")
        padded[:, :size] += dense.sum(0)
    total = padded_sum(sums, sizes)
    for place, size in enumerate(sizes):
        assert torch.allclose(total.combined(place, "sum"), padded[:, :size], atol=1e-6)
    mean = total.combined(2, "mean")
    assert torch.allclose(mean[:, :2], padded[:, :2] / 12, atol=1e-6)
    assert torch.allclose(mean[:, 2:3], padded[:, 2:3] / 9, atol=1e-6)
    assert torch.allclose(mean[:, 3:], padded[:, 3:] / 5, atol=1e-6)


def test_padded_mean_over_touching_clients() -> None:
    upload, dense = changes(6, 2, 0)
    sums = Total()
    add_sized(sums, 0, upload, "items")
    total = padded_sum(sums, (2,))
    touched = (dense != 0).any(2).sum(0).clamp(min=1)[:, None]
    assert torch.allclose(total.combined(0, "touched"), dense.sum(0) / touched, atol=1e-6)
    assert torch.equal(total.combined(0, "touched", padded=False), total.combined(0, "touched"))


def test_dense_uploads_add_up_like_rows() -> None:
    upload, dense = changes(4, 3, 1)
    sums = Total(), Total()
    add_sized(sums[0], 0, upload, "items")
    add_sized(sums[1], 0, Upload(upload.clients, upload.weights, {"items": dense}), "items")
    one, two = (padded_sum(total, (3,)) for total in sums)
    assert torch.allclose(one.combined(0, "sum"), two.combined(0, "sum"), atol=1e-6)


def test_ratio_sorts_by_count_with_ties_by_number() -> None:
    counts = torch.tensor([5, 1, 5, 9, 5, 2, 8, 7, 6, 5])
    assert nested_sizes.by_ratio(counts, (5, 3, 2)).tolist() == [0, 0, 0, 2, 0, 0, 2, 1, 1, 1]
    sizes = torch.bincount(nested_sizes.by_ratio(torch.arange(6040), (5, 3, 2)))
    assert sizes.tolist() == [3020, 1812, 1208]
    assert torch.bincount(nested_sizes.at_random(100, (1, 1, 2), 0)).tolist() == [25, 25, 50]


def test_budgets_pick_the_largest_size_that_fits() -> None:
    counts = torch.tensor([0, 39, 40, 79, 80, 500])
    assert nested_sizes.by_interactions(counts, (8, 16, 32), 5).tolist() == [0, 0, 0, 0, 1, 2]
    assert nested_sizes.by_memory(torch.tensor([1.0, 2.5, 9.0]), [1_000_000, 2_000_000, 4_000_000]).tolist() == [
        0,
        1,
        2,
    ]
    with pytest.raises(ConfigError, match=r"client 1 states 0\.5 MB"):
        nested_sizes.by_memory(torch.tensor([1.0, 0.5]), [1_000_000])


def test_predictor_size_of_the_card() -> None:
    assert [FlatMLP((2 * n, 8, 8, 1)).size for n in (8, 16, 32)] == [217, 345, 601]


def test_predict_is_the_plain_network() -> None:
    network = FlatMLP((8, 5, 3, 1))
    user, table = torch.randn(2, 4, generator=rng()), torch.randn(7, 4, generator=rng())
    theta = network.draw(kaiming, rng())
    theta = theta + 0.1 * torch.randn(theta.shape, generator=rng())
    x = torch.cat([user[:, None].expand(-1, 7, -1), table.expand(2, -1, -1)], 2)
    at = 0
    for depth, (n_in, n_out) in enumerate(((8, 5), (5, 3), (3, 1))):
        weight = theta[at : at + n_in * n_out].view(n_out, n_in)
        x = (x.relu() if depth else x) @ weight.T + theta[at + n_in * n_out : at + n_out * (n_in + 1)]
        at += n_out * (n_in + 1)
    every = models.predict(user, table.expand(2, -1, -1), theta.expand(2, -1), network)
    assert torch.allclose(every, x.squeeze(2), atol=1e-5)
    assert torch.allclose(models.predict_shared(user, table, theta, network), x.squeeze(2), atol=1e-5)


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_star_graph_is_lightgcn(depth: int) -> None:
    user, rows = torch.randn(1, 3, generator=rng()), torch.randn(1, 6, 3, generator=rng())
    positive = torch.tensor([[1.0, 0, 1, 1, 0, 0]])
    adjacency = torch.zeros(7, 7)
    adjacency[0, 1:] = adjacency[1:, 0] = positive[0]
    degree = adjacency.sum(1).clamp(min=1)
    norm = adjacency / (degree[:, None] * degree).sqrt()
    layer = torch.cat([user, rows[0]])
    total = layer.clone()
    for _ in range(depth):
        layer = norm @ layer
        total += layer
    found_user, found_rows = models.propagate(user, rows, positive, depth)
    assert torch.allclose(found_user[0], total[0] / (depth + 1), atol=1e-6)
    assert torch.allclose(found_rows[0], total[1:] / (depth + 1), atol=1e-6)
    alone_user, alone_rows = models.propagate(user, rows, positive, depth, user_only=True)
    assert torch.equal(alone_user, found_user)
    assert torch.equal(alone_rows, rows)
    narrow = models.propagate(user[:, :2], rows[..., :2], positive, depth)
    assert torch.allclose(narrow[1], found_rows[..., :2], atol=1e-6)  # slicing columns commutes with it
