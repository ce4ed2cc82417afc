import time

import numpy as np
import pytest
import torch

import fedrec
from fedrec.errors import FedrecError
from fedrec.evaluation import Evaluator


def brute_force(split, scores, part):
    """HR@10 and NDCG@10 by sorting one client at a time, without ties."""
    held = getattr(split, part)
    out = {"sampled": [], "full": []}
    for user in range(split.data.n_users):
        target = held.items[user][0]
        hidden = set(split.training.positives[user]) | (set(split.validation.items[user]) if part == "test" else set())
        everything = [i for i in range(split.data.n_items) if i not in hidden]
        for kind, items in (("sampled", [target, *held.candidates[user]]), ("full", everything)):
            rank = 1 + sum(scores[user, i] > scores[user, target] for i in items)
            out[kind].append((float(rank <= 10), 1 / np.log2(rank + 1) if rank <= 10 else 0.0))
    return {kind: np.array(values) for kind, values in out.items()}


@pytest.mark.parametrize("part", ["validation", "test"])
def test_agrees_with_sorting(honest, part):
    scores = torch.randn(honest.data.n_users, honest.data.n_items, generator=torch.Generator().manual_seed(0))
    evaluator = Evaluator(honest)
    evaluator.chunk = 37
    order = torch.randperm(honest.data.n_users, generator=torch.Generator().manual_seed(1))
    found = evaluator.evaluate(lambda clients: scores[clients], part, order=order)[part]
    expected = brute_force(honest, scores.numpy(), part)
    for kind, values in (("sampled", found.sampled), ("full", found.full)):
        np.testing.assert_allclose(values["hr@10"], expected[kind][:, 0], atol=1e-12)
        np.testing.assert_allclose(values["ndcg@10"], expected[kind][:, 1], atol=1e-12)


def test_constant_scores_are_chance_or_nothing(honest, paper):
    def constant(clients):
        return torch.zeros(len(clients), honest.data.n_items)

    assert Evaluator(honest).evaluate(constant, "test")["test"].means()["sampled"]["hr@10"] == pytest.approx(0.1)
    assert Evaluator(paper).evaluate(constant, "test")["test"].means()["sampled"]["hr@10"] == 0


def test_saturated_sigmoids_tie_under_the_paper_protocol(paper):
    scores = 200 + torch.rand(paper.data.n_users, paper.data.n_items)
    assert Evaluator(paper).evaluate(lambda c: scores[c], "test")["test"].means()["full"]["hr@10"] == 0
    plain = Evaluator(paper, logits=False).evaluate(lambda c: scores[c], "test")["test"].means()
    assert plain["full"]["hr@10"] > 0


def test_nan_scores_name_the_client(honest):
    scores = torch.zeros(honest.data.n_users, honest.data.n_items)
    scores[417, 3] = float("nan")
    with pytest.raises(FedrecError, match="client 417"):
        Evaluator(honest).evaluate(lambda clients: scores[clients], "test")


def test_several_targets(demo):
    split = fedrec.HETEFEDREC.split(demo)
    perfect = torch.zeros(demo.n_users, demo.n_items)
    perfect[split.test.items.owners, split.test.items.values] = 1
    means = Evaluator(split).evaluate(lambda c: perfect[c], "test")["test"].means()["full"]
    assert means["ndcg@20"] == pytest.approx(1)
    assert means["recall@20"] == pytest.approx(np.mean(np.minimum(1, 20 / split.test.items.counts)))


def test_training_items_are_never_recommended(honest):
    top = Evaluator(honest).top(lambda c: torch.rand(len(c), honest.data.n_items), 10)
    seen = honest.training.positives
    keys = seen.owners * honest.data.n_items + seen.values
    assert not np.isin(np.arange(len(top))[:, None] * honest.data.n_items + top.numpy(), keys).any()


def test_ml_1m_size_takes_under_two_seconds():
    rng = np.random.default_rng(0)
    n, m = 6040, 3706
    keys = np.unique(rng.integers(0, n * m, 1_000_000))
    keys = np.unique(np.concatenate([keys, (np.arange(n)[:, None] * m + np.arange(12)).ravel()]))
    users, items = keys // m, keys % m
    data = fedrec.Interactions(
        users.astype(np.int32),
        items.astype(np.int32),
        None,
        rng.permutation(len(keys)),
        tuple(range(n)),
        tuple(range(m)),
    )
    evaluator = Evaluator(fedrec.HONEST.split(data))
    scores = torch.randn(n, m)
    evaluator.evaluate(lambda clients: scores[clients], "test")
    start = time.perf_counter()
    evaluator.evaluate(lambda clients: scores[clients], "test")
    assert time.perf_counter() - start < 2
