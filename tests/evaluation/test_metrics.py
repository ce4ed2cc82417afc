import itertools
import math

import pytest
import torch

from fedrec.errors import ConfigError
from fedrec.evaluation.metrics import Metric, compute, parse_metric
from fedrec.evaluation.ranking import candidate_ranks, full_ranks

KINDS = ["hr", "ndcg", "recall", "precision", "mrr", "map"]


def values_of_list(relevant, k, held_out):
    """All metrics of one finished ranking by their textbook definitions (``relevant``: positions from 1)."""
    found = sorted(position for position in relevant if position <= k)
    ideal = sum(1 / math.log2(j + 1) for j in range(1, min(k, held_out) + 1))
    return {
        "hr": float(bool(found)),
        "ndcg": sum(1 / math.log2(p + 1) for p in found) / ideal,
        "recall": len(found) / held_out,
        "precision": len(found) / k,
        "mrr": 1 / found[0] if found else 0.0,
        "map": sum((n + 1) / p for n, p in enumerate(found)) / min(k, held_out),
    }


def one(better, tied, k, ties="expected"):
    """All metrics of one client with the given targets."""
    names = [f"{kind}@{k}" for kind in KINDS]
    result = compute(names, torch.tensor([better]), torch.tensor([tied]), ties=ties)
    return {kind: result[name].item() for kind, name in zip(KINDS, names, strict=True)}


def test_single_target_by_hand():
    got = compute(["hr@10", "ndcg@10", "mrr@10", "hr@2"], torch.tensor([0, 2, 9, 10]), torch.zeros(4, dtype=torch.long))
    assert got["hr@10"].tolist() == [1, 1, 1, 0]
    assert got["hr@10"].dtype == torch.float64
    assert got["hr@2"].tolist() == [1, 0, 0, 0]
    assert got["ndcg@10"].tolist() == pytest.approx([1, 0.5, 1 / math.log2(11), 0])
    assert got["mrr@10"].tolist() == pytest.approx([1, 1 / 3, 0.1, 0])


def test_several_targets_by_hand():
    # Held-out items at positions 1, 3 and 6 of the list, cut at 5.
    got = one([0, 2, 5], [0, 0, 0], 5)
    ideal = 1 + 1 / math.log2(3) + 1 / 2
    assert got == pytest.approx(
        {"hr": 1, "recall": 2 / 3, "precision": 2 / 5, "mrr": 1, "ndcg": 1.5 / ideal, "map": (1 + 2 / 3) / 3}
    )


def test_more_targets_than_places_can_still_be_perfect():
    got = one([0, 1, 2, 3], [0, 0, 0, 0], 2)
    assert got == pytest.approx({"hr": 1, "recall": 0.5, "precision": 1, "mrr": 1, "ndcg": 1, "map": 1})


@pytest.mark.parametrize("ties", ["expected", "pessimistic", "optimistic"])
def test_perfect_and_worst_rankings(ties):
    scores = torch.arange(50.0).expand(3, 50)
    best, worst = torch.tensor([[49, 48, 47]] * 3), torch.tensor([[0, 1, 2]] * 3)
    names = [f"{kind}@3" for kind in KINDS]
    for value in compute(names, *full_ranks(scores, best), ties=ties).values():
        assert value.tolist() == pytest.approx([1, 1, 1])
    for value in compute(names, *full_ranks(scores, worst), ties=ties).values():
        assert value.tolist() == [0, 0, 0]


def test_constant_scores_among_100_candidates():
    targets, candidates = torch.full((7,), 99), torch.arange(99).expand(7, 99)
    ranks = candidate_ranks(torch.ones(7, 100), targets, candidates)
    got = compute(["hr@10", "ndcg@10"], *ranks)
    assert got["hr@10"].tolist() == pytest.approx([0.1] * 7)
    assert got["ndcg@10"].tolist() == pytest.approx([0.0454] * 7, abs=5e-5)
    for value in compute(["hr@10", "ndcg@10"], *ranks, ties="pessimistic").values():
        assert not value.any()
    for value in compute(["hr@10", "ndcg@10"], *ranks, ties="optimistic").values():
        assert value.tolist() == [1.0] * 7


def test_random_scores_are_at_chance():
    rng = torch.Generator().manual_seed(5)
    scores = torch.rand(40_000, 100, generator=rng)
    ranks = candidate_ranks(scores, torch.zeros(40_000, dtype=torch.long), torch.arange(1, 100).expand(40_000, 99))
    got = compute(["hr@10", "ndcg@10"], *ranks)
    assert got["hr@10"].mean().item() == pytest.approx(0.1, abs=0.006)
    assert got["ndcg@10"].mean().item() == pytest.approx(0.0454, abs=0.003)


@pytest.mark.parametrize("k", [1, 3, 5, 9])
@pytest.mark.parametrize("targets", [[2], [0], [6], [2, 3], [0, 2, 3, 6], [2, 3, 4], [5, 6, 0]])
def test_expected_ties_equal_the_mean_over_every_order(k, targets):
    scores = torch.tensor([[9.0, 4.0, 4.0, 4.0, 4.0, 1.0, 1.0]])
    got = one(*(part.tolist()[0] for part in full_ranks(scores, torch.tensor([targets]))), k)
    orders = [
        (0, *middle, *end) for middle in itertools.permutations([1, 2, 3, 4]) for end in itertools.permutations([5, 6])
    ]
    lists = [values_of_list([order.index(t) + 1 for t in targets], k, len(targets)) for order in orders]
    for kind in KINDS:
        assert got[kind] == pytest.approx(sum(values[kind] for values in lists) / len(lists), abs=1e-12), kind


@pytest.mark.parametrize("n_targets", [1, 6])
def test_expected_ties_equal_the_mean_over_10000_random_orders(n_targets):
    rng = torch.Generator().manual_seed(11)
    scores = torch.randint(0, 5, (1, 60), generator=rng).double()
    targets = torch.randperm(60, generator=rng)[None, :n_targets]
    names = [f"{kind}@10" for kind in KINDS]
    expected = compute(names, *full_ranks(scores, targets))
    # A shift below 1 orders equal scores at random and leaves different ones alone.
    shuffled = scores + 0.5 * torch.rand(10_000, 60, generator=rng, dtype=torch.float64)
    drawn = compute(names, *full_ranks(shuffled, targets.expand(10_000, n_targets)))
    for name in names:
        error = 5 * drawn[name].std().item() / 100 + 1e-12
        assert expected[name].item() == pytest.approx(drawn[name].mean().item(), abs=error), name


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 6])
def test_fixed_tie_rules_are_the_best_and_worst_order(k):
    # Items 1-4 are level; targets 2 and 3 of them come last (positions 4, 5) or first (2, 3).
    ranks = full_ranks(torch.tensor([[9.0, 4.0, 4.0, 4.0, 4.0, 1.0]]), torch.tensor([[2, 3]]))
    better, tied = (part.tolist()[0] for part in ranks)
    assert one(better, tied, k, "pessimistic") == pytest.approx(values_of_list([4, 5], k, 2))
    assert one(better, tied, k, "optimistic") == pytest.approx(values_of_list([2, 3], k, 2))


def test_single_target_tie_positions():
    assert one([2], [3], 6, "pessimistic")["mrr"] == pytest.approx(1 / 6)
    assert one([2], [3], 5, "pessimistic")["hr"] == 0
    assert one([2], [3], 6, "optimistic")["mrr"] == pytest.approx(1 / 3)
    assert one([2], [3], 4)["hr"] == pytest.approx(2 / 4)


def test_padding_counts_and_clients_without_held_out_items():
    better, tied = torch.tensor([[3, -1, 0], [-1, -1, -1]]), torch.zeros(2, 3, dtype=torch.long)
    got = compute(["recall@2", "ndcg@2"], better, tied)
    assert got["recall@2"][0] == 0.5
    assert got["ndcg@2"][0].item() == pytest.approx(1 / (1 + 1 / math.log2(3)))
    assert got["recall@2"][1].isnan()
    given = compute(["recall@2"], better, tied, torch.tensor([4, 1]))
    assert given["recall@2"].tolist() == [0.25, 0]
    nothing = torch.zeros(2, 0, dtype=torch.long)
    assert all(value.isnan().all() for value in compute(["hr@5", "map@5"], nothing, nothing).values())
    none = torch.zeros(0, dtype=torch.long)
    assert all(len(value) == 0 for value in compute([f"{kind}@5" for kind in KINDS], none, none).values())


def test_metric_names():
    assert parse_metric("ndcg@20") == Metric("ndcg", 20)
    assert str(Metric("hr", 5)) == "hr@5"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("ndgc@10", "did you mean 'ndcg'"),
        ("recal@5", "did you mean 'recall'"),
        ("HR@10", "did you mean 'hr@10'"),
        ("ndcg", "did you mean 'ndcg@10'"),
        ("ndcg20", "did you mean 'ndcg@20'"),
        ("hr@0", "k >= 1"),
        ("auc@10", "known: hr, map"),
        ("", "known: hr, map"),
        ("hr@ten", "metric 'hr@ten'"),
    ],
)
def test_misspelt_metrics_are_explained(text, hint):
    with pytest.raises(ConfigError) as caught:
        parse_metric(text)
    assert hint in str(caught.value)


def test_unknown_tie_rule_and_unequal_shapes():
    zeros = torch.zeros(2, dtype=torch.long)
    with pytest.raises(ConfigError, match="did you mean 'pessimistic'"):
        compute(["hr@1"], zeros, zeros, ties="pesimistic")
    with pytest.raises(ValueError, match="differ in shape"):
        compute(["hr@1"], zeros, zeros[:1])
