from __future__ import annotations

import pytest
import torch

from fedrec.errors import ConfigError
from fedrec.methods.gpfedrec.graph import adjacency, closeness, normalised


def tables(n: int = 6) -> torch.Tensor:
    return torch.randn(n, 7, 3, generator=torch.Generator().manual_seed(0)) + 1


def test_closeness_is_the_cosine_across_cohorts() -> None:
    flat = tables().flatten(1)
    expected = torch.nn.functional.cosine_similarity(flat[:, None], flat[None], dim=2)
    torch.testing.assert_close(closeness([tables()[:2], tables()[2:]], "similarity"), expected)
    distance = closeness([tables()], "distance")
    torch.testing.assert_close(distance, 1 - expected, atol=1e-6, rtol=0)
    assert bool((distance.diagonal() == 0).all())


@pytest.mark.parametrize("rule", ["threshold", "topk", "quantile"])
@pytest.mark.parametrize("kind", ["distance", "similarity"])
def test_rows_are_means_over_the_nearest(kind: str, rule: str) -> None:
    near = closeness([tables()], kind)  # type: ignore[arg-type]
    weights = adjacency(near.clone(), rule, k=2, quantile=0.5)  # type: ignore[arg-type]
    torch.testing.assert_close(weights.sum(1), torch.ones(6))
    for row, values in zip(weights, near, strict=True):
        linked = row > 0
        assert len(row[linked].unique()) == 1
        if bool((~linked).any()) and int(linked.sum()) > 1:
            assert values[linked].min() >= values[~linked].max()
    if rule == "topk":
        assert bool(((weights > 0).sum(1) == 2).all())


def test_threshold_by_hand() -> None:
    near = torch.tensor([[0.0, 4, 1], [4, 0, 1], [1, 1, 0]])  # mean 12/9
    expected = torch.tensor([[0.0, 1, 0], [1, 0, 0], [0, 0, 1]])
    assert torch.equal(adjacency(near, "threshold", gamma=1.0), expected)


def test_identical_clients_keep_to_themselves() -> None:
    assert torch.equal(adjacency(torch.zeros(4, 4), "threshold"), torch.eye(4))


def test_everybody_as_neighbour_is_the_mean() -> None:
    weights = adjacency(closeness([tables()], "similarity"), "topk", k=6)
    torch.testing.assert_close(weights, torch.full((6, 6), 1 / 6))


def test_a_threshold_that_isolates_everybody_is_refused() -> None:
    for kind in ("similarity", "distance"):
        with pytest.raises(ConfigError, match="gamma = 9 isolates every client"):
            adjacency(closeness([tables()], kind), "threshold", gamma=9)  # type: ignore[arg-type]


def test_more_neighbours_than_clients_are_refused() -> None:
    with pytest.raises(ConfigError, match="k = 7 neighbours, but 6 clients"):
        adjacency(closeness([tables()], "similarity"), "topk", k=7)


def test_empty_rows_become_the_client_itself() -> None:
    assert torch.equal(normalised(torch.tensor([[0.0, 0], [2, 2]])), torch.tensor([[1.0, 0], [0.5, 0.5]]))
