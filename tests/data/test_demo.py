import hashlib

import numpy as np
import pytest

from fedrec.data import catalogue, load, stats


@pytest.fixture(scope="module")
def data():
    return load("demo")


def test_is_the_same_everywhere(data):
    digest = hashlib.sha256()
    for array in (data.users, data.items, data.ratings, data.timestamps):
        digest.update(array.astype("<i8").tobytes())
    digest.update(" ".join(data.user_ids + data.item_ids).encode())
    assert digest.hexdigest() == "960ef2811ff7e27c233a496f4eb72f08ad365eee4771d5fd45d0ec586d1c62b3"


def test_shape(data):
    entry, numbers = catalogue["demo"], stats(data)
    assert (numbers["users"], numbers["items"], numbers["rows"]) == (entry.users, entry.items, entry.rows)
    assert numbers["rows"] == numbers["distinct_pairs"]
    assert numbers["min_per_user"] >= 15
    assert 35 < numbers["mean_per_user"] < 45
    assert set(data.ratings.tolist()) == {1.0, 2.0, 3.0, 4.0, 5.0}
    popularity = np.sort(np.bincount(data.items))[::-1]
    assert popularity[:80].sum() > 0.45 * len(data)


def test_times_are_unique_per_client_and_rows_in_their_order(data):
    pairs = np.stack([data.users.astype(np.int64), data.timestamps])
    assert np.unique(pairs, axis=1).shape[1] == len(data)
    assert (np.diff(data.timestamps) >= 0).all()


def test_codes_follow_first_appearance(data):
    for codes in (data.users, data.items):
        _, first = np.unique(codes, return_index=True)
        assert (np.diff(first) > 0).all()


def test_tastes_can_be_learnt(data):
    """Leave the newest item out; 99 items the client never saw compete with it."""
    order = np.lexsort((data.timestamps, data.users))
    users, items = data.users[order], data.items[order]
    test = np.append(users[1:] != users[:-1], True)
    train = ~(test | np.append(test[1:], False))
    seen = np.zeros((data.n_users, data.n_items))
    seen[users[train], items[train]] = 1.0
    ever = np.zeros_like(seen, dtype=bool)
    ever[users, items] = True
    rng = np.random.default_rng(0)
    draw = np.where(ever, 2.0, rng.random(ever.shape))
    candidates = np.argsort(draw, axis=1)[:, :99]

    def hit_rate(scores):
        positive = scores[np.arange(data.n_users), items[test]][:, None]
        rivals = np.take_along_axis(scores, candidates, axis=1)
        return np.mean((rivals > positive).sum(1) + (rivals == positive).sum(1) / 2 < 10)

    inverse = np.linalg.inv(seen.T @ seen + 100.0 * np.eye(data.n_items))
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0.0)
    popularity = hit_rate(np.tile(seen.sum(0), (data.n_users, 1)))
    assert 0.30 <= popularity <= 0.45
    assert hit_rate(seen @ weights) >= popularity + 0.15
