"""Histories and scores from item-item weights: two clients worked out by hand, and plain loops."""

import math

import numpy as np
import pytest
import torch

from fedrec.data.training import Ragged, TrainingView
from fedrec.parts import recent
from fedrec.parts.recent import (
    appended,
    dense_parts,
    dense_scores,
    kept_parts,
    kept_scores,
    largest,
    own_history,
    recency,
)

HISTORY = torch.tensor([[3, 0, 2], [1, -1, -1], [-1, -1, -1]], dtype=torch.int32)
COUNTS = torch.tensor([[0.5, 1.0, 2.0], [4.0, 9.0, 9.0], [9.0, 9.0, 9.0]])
COUNTS_OF_REAL = COUNTS.where(HISTORY >= 0, 0)
WEIGHTS = torch.tensor([[0.0, 1, 2, -3], [4, 0, -5, 0.5], [1, 1, 0, 1], [0.1, 0.2, 0.3, 0]])


def view(lists, history=None, items=6):
    def ragged(given):
        owners = np.repeat(np.arange(len(given)), [len(own) for own in given])
        return Ragged.build(owners, np.array([item for own in given for item in own], np.int64), len(given))

    distinct = ragged([sorted(set(own)) for own in lists])
    return TrainingView(len(lists), items, ragged(lists), distinct, None if history is None else ragged(history))


def test_a_history_is_oldest_first_for_any_clients_in_any_order():
    found = own_history(view([[4, 1], [2], [5, 0, 3]], history=[[4, 1], [2], [5, 0, 3]]), torch.tensor([2, 0, 2]))
    assert set(found) == {"history"}
    assert found["history"].dtype == torch.int32
    assert found["history"].tolist() == [[5, 0, 3], [4, 1, -1], [5, 0, 3]]


def test_its_width_is_that_of_the_longest_of_all_clients():
    """So that clients of one cohort and of the next lie in one store."""
    found = own_history(view([[4, 1], [2], [5, 0, 3]], history=[[4, 1], [2], [5, 0, 3]]), torch.tensor([1]))
    assert found["history"].tolist() == [[2, -1, -1]]


def test_without_time_it_is_every_item_once():
    found = own_history(view([[4, 1, 4], [], [3, 3, 3, 0]]), torch.arange(3))["history"]
    assert [sorted(row[row >= 0].tolist()) for row in found] == [[1, 4], [], [0, 3]]
    assert found.shape == (3, 2)


def test_clients_without_items_have_a_history_of_padding():
    assert own_history(view([[], []], history=[[], []]), torch.arange(2))["history"].tolist() == [[-1], [-1]]
    empty = TrainingView(0, 6, *(Ragged.build(np.zeros(0, np.int64), np.zeros(0, np.int64), 0) for _ in range(3)))
    assert own_history(empty, torch.zeros(0, dtype=torch.int64))["history"].shape == (0, 1)


def test_later_items_come_behind_the_others_without_gaps():
    later = torch.tensor([[7, -1], [8, 9], [-1, 6]])
    found = appended(HISTORY, later)
    assert found.dtype == torch.int32
    assert found.tolist() == [[3, 0, 2, 7, -1], [1, 8, 9, -1, -1], [6, -1, -1, -1, -1]]


def test_what_is_recent_counts_more():
    found = recency(HISTORY, 2.0)
    assert found.dtype == torch.float32
    assert found[0].tolist() == pytest.approx([math.exp(-1), math.exp(-0.5), 1.0])
    assert found[1].tolist() == [1.0, 0.0, 0.0]
    assert found[2].tolist() == [0.0, 0.0, 0.0]


def test_without_decay_all_items_count_the_same():
    assert recency(HISTORY, None).tolist() == [[1, 1, 1], [1, 0, 0], [0, 0, 0]]


def test_scores_are_sums_of_the_weights_of_what_a_client_has():
    """The first client: half the row of 3, the row of 0, twice that of 2."""
    found = dense_scores(HISTORY, COUNTS, WEIGHTS)
    assert found[0].tolist() == pytest.approx([0.05 + 0 + 2, 0.1 + 1 + 2, 0.15 + 2 + 0, 0 - 3 + 2])
    assert found[1].tolist() == pytest.approx([16, 0, -20, 2])
    assert found[2].tolist() == [0, 0, 0, 0]
    assert torch.equal(dense_scores(HISTORY, COUNTS, WEIGHTS[:, :2]), found[:, :2])


def test_the_largest_weights_are_kept_by_absolute_value_in_the_order_of_items():
    values, items = largest(WEIGHTS, 2)
    assert items.tolist()[:2] == [[2, 3], [0, 2]]
    assert values.tolist()[:2] == [[2, -3], [4, -5]]
    assert items[3].tolist() == [1, 2]
    values, items = largest(WEIGHTS, 9)
    assert items.tolist() == [[0, 1, 2, 3]] * 4
    assert torch.equal(values, WEIGHTS)


def only_kept(keep):
    values, items = largest(WEIGHTS, keep)
    return values, items, torch.zeros_like(WEIGHTS).scatter_(1, items, values)


@pytest.mark.parametrize("kernels", ["on", "off"])
@pytest.mark.parametrize("at_once", [1, 5, 1 << 22])
@pytest.mark.parametrize("keep", [1, 2, 4])
def test_scores_from_kept_weights_are_those_with_the_others_zero(keep, at_once, kernels, monkeypatch):
    monkeypatch.setenv("FEDREC_KERNELS", kernels)
    monkeypatch.setattr(recent, "AT_ONCE", at_once)
    values, items, sparse = only_kept(keep)
    found = kept_scores(HISTORY, COUNTS, values, items)
    torch.testing.assert_close(found, dense_scores(HISTORY, COUNTS, sparse))
    assert float(found.abs().sum()) > 0


@pytest.mark.parametrize("kernels", ["on", "off"])
def test_kept_weights_may_be_of_narrow_numbers(kernels, monkeypatch):
    monkeypatch.setenv("FEDREC_KERNELS", kernels)
    values, items, _ = only_kept(2)
    wide = kept_scores(HISTORY, COUNTS, values, items)
    narrow = kept_scores(HISTORY, COUNTS, values.half(), items.to(torch.int16))
    torch.testing.assert_close(narrow, wide, rtol=1e-3, atol=1e-3)


def test_the_parts_of_a_score_are_what_every_item_adds():
    wanted = torch.tensor([[1, 3], [2, 0], [0, 0]])
    found = dense_parts(HISTORY, COUNTS_OF_REAL, WEIGHTS, wanted)
    assert found.shape == (3, 3, 2)
    assert found[0, 1].tolist() == [1.0, -3.0], "item 0, which counts once, for items 1 and 3"
    assert found[0, 2].tolist() == [2.0, 2.0], "item 2 counts twice"
    assert found[1, 0].tolist() == [-20.0, 16.0]
    assert not found[1, 1:].any()
    assert not found[2].any()
    scores = dense_scores(HISTORY, COUNTS, WEIGHTS)
    torch.testing.assert_close(found.sum(1), scores.gather(1, wanted))


def test_the_parts_of_a_score_from_kept_weights_add_up_to_it():
    wanted = torch.tensor([[1, 3], [2, 0], [0, 0]])
    values, items, sparse = only_kept(2)
    found = kept_parts(HISTORY, COUNTS_OF_REAL, values, items, wanted)
    torch.testing.assert_close(found, dense_parts(HISTORY, COUNTS_OF_REAL, sparse, wanted))
    narrow = kept_parts(HISTORY, COUNTS_OF_REAL, values.half(), items.to(torch.int16), wanted)
    assert narrow.dtype == torch.float32
    torch.testing.assert_close(narrow, found, rtol=1e-3, atol=1e-3)


def test_compiled_code_scores_unless_it_is_switched_off(monkeypatch):
    used, (values, items, _) = [], only_kept(2)
    monkeypatch.setattr(recent, "add_kept", lambda *given: used.append(given))
    kept_scores(HISTORY, COUNTS, values, items)
    assert used
    used.clear()
    monkeypatch.setenv("FEDREC_KERNELS", "off")
    kept_scores(HISTORY, COUNTS, values, items)
    assert not used


def test_what_is_made_lies_where_the_histories_are(monkeypatch):
    """Where another device is the default, what is made without naming one does not fit the rest."""
    monkeypatch.setenv("FEDREC_KERNELS", "off")
    (values, items, _), later = only_kept(2), torch.tensor([[7, -1], [8, 9], [-1, 6]])

    def everything():
        return [
            kept_scores(HISTORY, COUNTS, values, items), dense_scores(HISTORY, COUNTS, WEIGHTS), recency(HISTORY, 2.0),
            recency(HISTORY, None), appended(HISTORY, later), *largest(WEIGHTS, 2),
        ]  # fmt: skip

    expected = everything()
    with torch.device("meta"):
        found = everything()
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
