"""Scores of many clients are those of one after the other, whether they share a table or not."""

import torch

from fedrec.parts import scorers
from fedrec.parts.scorers import broadcast, by_chunks, dot, shared

DRAW = torch.Generator().manual_seed(0)
USERS, TABLE, OWN = (torch.randn(*size, generator=DRAW) for size in ((5, 3), (7, 3), (5, 7, 3)))


def test_a_broadcast_table_is_shared_and_not_copied():
    given = broadcast(TABLE, 5)
    assert given.shape == (5, 7, 3)
    assert given.data_ptr() == TABLE.data_ptr()
    assert torch.equal(shared(given), TABLE)
    assert shared(OWN) is None
    assert shared(TABLE) is None
    assert shared(given[:0]) is None
    assert shared(given.clone()) is None


def test_scores_are_inner_products():
    expected = torch.stack([table @ user for table, user in zip(OWN, USERS, strict=True)])
    torch.testing.assert_close(dot(USERS, OWN), expected)
    torch.testing.assert_close(dot(USERS, broadcast(TABLE, 5)), USERS @ TABLE.T)


def test_chunks_of_clients_score_alike_and_without_gradients(monkeypatch):
    weights, asked = torch.ones(5, 3, requires_grad=True), []

    def score(users, of_clients, tables):
        asked.append(len(users))
        return dot(users * of_clients, tables)

    for pairs, sizes in ((1 << 18, [5]), (15, [2, 2, 1]), (1, [1] * 5)):
        monkeypatch.setitem(scorers.PAIRS, "cpu", pairs)
        asked.clear()
        found = by_chunks(score, OWN, USERS, weights)
        torch.testing.assert_close(found, dot(USERS, OWN))
        assert not found.requires_grad
        assert asked == sizes
