"""Ranks by compiled code are those by torch, to the bit: ties, several targets, targets that are hidden, no candidates."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fedrec
from fedrec.data import Interactions
from fedrec.data.training import Ragged
from fedrec.errors import FedrecError
from fedrec.evaluation import Evaluator, evaluator
from fedrec.evaluation.cpu_ranking import BLOCK
from fedrec.evaluation.ranked import compiled_top
from fedrec.evaluation.ranking import top_items


def repeated():
    """Data whose held-out items may also be among the training items, and that have few items."""
    rng = np.random.default_rng(3)
    users = np.repeat(np.arange(30), rng.integers(5, 40, 30)).astype(np.int32)
    items = rng.integers(0, 25, len(users)).astype(np.int32)
    return Interactions(users, items, None, np.arange(len(users)), tuple(range(30)), tuple(range(25)), "repeated")


PROTOCOLS = {
    "honest": fedrec.HONEST.with_options(min_interactions=3, candidates=5),
    "rows that repeat": fedrec.PAPER.with_options(
        min_interactions=3, candidates=0, duplicates="keep", select_ranking="full"
    ),
    "several targets": fedrec.HETEFEDREC.with_options(min_interactions=3, test_ratio=0.4),
}


def both(monkeypatch, work):
    found = work()
    monkeypatch.setattr(evaluator, "compiles", lambda scores: False)
    return found, work()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("levels", [2, 7, 10**6])
def test_they_agree_with_torch(monkeypatch, protocol, levels):
    split = PROTOCOLS[protocol].split(repeated())
    scores = torch.randint(-levels, levels, (split.data.n_users, split.data.n_items)).float() / levels
    order = torch.randperm(split.data.n_users)

    def work():
        judge = Evaluator(split)
        judge.chunk = 7
        return judge.evaluate(lambda c: scores[c], "validation", "test", order=order), judge.top(
            lambda c: scores[c], 10
        )

    (found, top), (wanted, wanted_top) = both(monkeypatch, work)
    assert torch.equal(top, wanted_top)
    for part in ("validation", "test"):
        for kind in ("sampled", "full"):
            values, other = getattr(found[part], kind), getattr(wanted[part], kind)
            assert values.keys() == other.keys()
            for name in values:
                np.testing.assert_array_equal(values[name], other[name], err_msg=f"{part} {kind} {name}")


def test_each_part_alone_is_as_both_together(monkeypatch):
    split = PROTOCOLS["honest"].split(repeated())
    scores = torch.rand(split.data.n_users, split.data.n_items)
    together = Evaluator(split).evaluate(lambda c: scores[c], "validation", "test")
    for part in ("validation", "test"):
        alone = Evaluator(split).evaluate(lambda c: scores[c], part)[part]
        for name, value in alone.full.items():
            np.testing.assert_array_equal(value, together[part].full[name])


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_scores_that_are_not_finite_are_refused(bad):
    split = PROTOCOLS["honest"].split(repeated())
    scores = torch.rand(split.data.n_users, split.data.n_items)
    scores[4, 0] = bad
    with pytest.raises(FedrecError, match="client 4"):
        Evaluator(split).evaluate(lambda c: scores[c], "validation")
    with pytest.raises(FedrecError, match="client 4"):
        Evaluator(split).top(lambda c: scores[c])


def test_lists_that_are_too_long_for_one_table_are_padded_block_by_block(monkeypatch):
    split = PROTOCOLS["several targets"].split(repeated())
    scores = torch.rand(split.data.n_users, split.data.n_items)
    wanted = Evaluator(split).evaluate(lambda c: scores[c], "test")["test"].means()
    monkeypatch.setattr("fedrec.evaluation.ranked.WHOLE", 0)
    judge = Evaluator(split)
    judge.chunk = 4
    assert judge.evaluate(lambda c: scores[c], "test")["test"].means() == wanted


@pytest.mark.parametrize("items", [BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK + 3])
@pytest.mark.parametrize("levels", [4, 10**6])
def test_lists_of_more_items_than_are_passed_over_together_are_those_of_torch(items, levels):
    rng = np.random.default_rng(items)
    scores = torch.from_numpy(rng.integers(0, levels, (200, items)).astype(np.float32) / levels)
    hidden = torch.from_numpy(rng.random((200, items)) < 0.3)
    counts = hidden.sum(1).numpy()
    lists = Ragged(np.concatenate([[0], np.cumsum(counts)]), hidden.nonzero()[:, 1].numpy().astype(np.int32))
    assert torch.equal(compiled_top(scores, torch.arange(200), lists, 5), top_items(scores, hidden, 5))
