import numpy as np
import pytest
import torch

import fedrec
from fedrec.errors import FedrecError
from fedrec.evaluation import Evaluation, Evaluator


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
    for chunk in (37, 1000):
        evaluator = Evaluator(honest)
        evaluator.chunk = chunk
        with pytest.raises(FedrecError, match="client 417"):
            evaluator.evaluate(lambda clients: scores[clients], "test")
        with pytest.raises(FedrecError, match="client 417"):
            evaluator.top(lambda clients: scores[clients])


def test_several_targets(demo):
    split = fedrec.HETEFEDREC.split(demo)
    perfect = torch.zeros(demo.n_users, demo.n_items)
    perfect[split.test.items.owners, torch.tensor(split.test.items.values)] = 1
    means = Evaluator(split).evaluate(lambda c: perfect[c], "test")["test"].means()["full"]
    assert means["ndcg@20"] == pytest.approx(1)
    assert means["recall@20"] == pytest.approx(np.mean(np.minimum(1, 20 / split.test.items.counts)))


def test_training_items_are_never_recommended(honest):
    top = Evaluator(honest).top(lambda c: torch.rand(len(c), honest.data.n_items), 10)
    seen = honest.training.positives
    keys = seen.owners * honest.data.n_items + seen.values
    assert not np.isin(np.arange(len(top))[:, None] * honest.data.n_items + top.numpy(), keys).any()


def test_validation_items_are_no_rivals_at_test_but_test_items_are_rivals_at_validation(honest):
    n, m = honest.data.n_users, honest.data.n_items
    scores = torch.zeros(n, m)
    seen, validation, test = honest.training.positives, honest.validation.items, honest.test.items
    for lists, score in ((seen, 5.0), (validation, 2.0), (test, 1.0)):
        scores[lists.owners, torch.tensor(lists.values)] = score
    found = Evaluator(honest).evaluate(lambda clients: scores[clients], "validation", "test")
    assert (found["test"].full["ndcg@10"] == 1).all()
    assert (found["validation"].full["ndcg@10"] == 1).all()
    scores[test.owners, torch.tensor(test.values)] = 3.0  # selection must not know which items are the test's
    found = Evaluator(honest).evaluate(lambda clients: scores[clients], "validation")
    np.testing.assert_allclose(found["validation"].full["ndcg@10"], 1 / np.log2(3))


def test_sigmoids_are_ranked_only_where_the_protocol_says_so(honest, paper):
    scores = 16.5 + torch.rand(paper.data.n_users, paper.data.n_items, generator=torch.Generator().manual_seed(2))
    squashed = torch.sigmoid(scores)
    assert len(squashed.unique()) < 8  # float32 keeps few different values so close to 1

    def values(evaluator, table):
        return evaluator.evaluate(lambda clients: table[clients], "test")["test"].full["hr@10"]

    as_given, flat = values(Evaluator(paper, logits=False), squashed), values(Evaluator(paper), scores)
    np.testing.assert_array_equal(flat, as_given)
    assert flat.mean() < values(Evaluator(paper, logits=False), scores).mean()
    ordered = scores.argsort(1).argsort(1).float()
    np.testing.assert_array_equal(values(Evaluator(honest), scores), values(Evaluator(honest), ordered))


def test_every_client_is_scored_once_for_all_parts_in_blocks_of_a_million_scores(honest):
    asked = []

    def scorer(clients):
        asked.append(clients)
        return torch.zeros(len(clients), honest.data.n_items)

    evaluator = Evaluator(honest)
    assert 2**19 < evaluator.chunk * honest.data.n_items <= 2**20
    evaluator.chunk = 64
    evaluator.evaluate(scorer, "validation", "test")
    assert torch.equal(torch.cat(asked), torch.arange(honest.data.n_users))
    assert max(len(clients) for clients in asked) == 64
    asked.clear()
    order = torch.arange(honest.data.n_users).flip(0)
    evaluator.evaluate(scorer, "test", order=order)
    assert torch.equal(torch.cat(asked), order)


def test_top_lists_hold_ten_items_unless_told_and_may_name_held_out_ones(honest):
    scores = torch.zeros(honest.data.n_users, honest.data.n_items)
    for lists, score in ((honest.validation.items, 2.0), (honest.test.items, 1.0)):
        scores[lists.owners, torch.tensor(lists.values)] = score
    top = Evaluator(honest).top(lambda clients: scores[clients])
    assert top.shape == (honest.data.n_users, 10)
    assert top[:, 0].tolist() == honest.validation.items.values.tolist()
    assert top[:, 1].tolist() == honest.test.items.values.tolist()


def test_means_leave_out_clients_without_held_out_items():
    values = {"hr@10": np.array([1.0, np.nan, 0.0]), "ndcg@10": np.array([np.nan] * 3)}
    means = Evaluation(full=values).means()
    assert means["sampled"] == {}
    assert means["full"]["hr@10"] == 0.5
    assert np.isnan(means["full"]["ndcg@10"])


def test_clients_without_held_out_items_have_no_value(demo):
    split = fedrec.HETEFEDREC.with_options(holdout="global-time").split(demo)
    means = Evaluator(split).evaluate(lambda c: torch.zeros(len(c), demo.n_items), "validation", "test")
    for part, held in (("validation", split.validation), ("test", split.test)):
        without = held.items.counts == 0
        assert without.any()
        np.testing.assert_array_equal(np.isnan(means[part].full["recall@20"]), without)
