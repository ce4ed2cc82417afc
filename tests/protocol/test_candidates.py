"""Candidates are a function of ids and seed, on any machine and for any size of the data."""

import numpy as np
import pytest

import fedrec
from fedrec.data import Interactions
from fedrec.data.training import Ragged
from fedrec.errors import DataError
from fedrec.protocol import candidates
from fedrec.protocol.candidates import draw_candidates


def make_seen(n: int, n_items: int, seed: int = 0, most: int = 30) -> Ragged:
    rng = np.random.default_rng(seed)
    lists = [np.sort(rng.choice(n_items, rng.integers(0, most + 1), replace=False)) for _ in range(n)]
    return Ragged.build(np.repeat(np.arange(n), [len(x) for x in lists]), np.concatenate(lists), n)


def draw(seen, n_items, count, seed=0, stream=2, **options):
    ranks = {"user_rank": np.arange(len(seen)), "item_rank": np.arange(n_items)} | options
    return draw_candidates(seen, n_items, count, seed=seed, stream=stream, **ranks)


@pytest.fixture(params=["keys", "trial"])
def way(request, monkeypatch):
    """Both ways to draw, the second of which is for large data only."""
    if request.param == "trial":
        monkeypatch.setattr(candidates, "_keys_for_all", lambda *sizes: False)
    return request.param


class CoarseKeys:
    """Random keys of which many are equal, as a few are in large catalogues."""

    def __init__(self, lowest):
        self.drawn, self.lowest = [], lowest

    def random(self, n, dtype):
        keys = np.random.default_rng(len(self.drawn)).integers(self.lowest, 16, n).astype(dtype) / 16
        self.drawn.append(keys)
        return keys.copy()


@pytest.mark.parametrize("block", [1, 150, 1 << 21])
@pytest.mark.parametrize("count", [1, 10, 70])
@pytest.mark.parametrize("lowest", [0, 10])
def test_of_equal_keys_the_earlier_item_wins(monkeypatch, block, count, lowest):
    """Also where all keys happen to be large, so that too few lie below the limit."""
    monkeypatch.setattr(candidates, "_KEYS", block)
    seen = make_seen(40, 100)
    rng = CoarseKeys(lowest)
    best = candidates._by_keys(rng, seen.owners * 100 + seen.values, 40, 100, count)
    keys = np.concatenate(rng.drawn).reshape(40, 100)
    for client in range(40):
        free = np.setdiff1d(np.arange(100), seen[client])
        assert best[client].tolist() == sorted(free, key=lambda item: (keys[client, item], item))[:count]


def test_blocks_of_keys_do_not_change_the_draw(monkeypatch):
    seen = make_seen(50, 300)
    whole = draw(seen, 300, 40)
    monkeypatch.setattr(candidates, "_KEYS", 1000)
    assert np.array_equal(draw(seen, 300, 40), whole)


@pytest.mark.parametrize("count", [1, 20, 60])
def test_candidates_are_distinct_new_and_ascending(way, count):
    for n_items, most in ((90, 30), (400, 340), (3000, 30)):
        seen = make_seen(70, n_items, most=most)
        drawn = draw(seen, n_items, count)
        assert drawn.dtype == np.int32
        assert drawn.shape == (70, count)
        assert (np.diff(drawn, axis=1) > 0).all()
        assert ((drawn >= 0) & (drawn < n_items)).all()
        for client in range(70):
            assert not set(drawn[client]) & set(seen[client])


def test_all_that_is_free_can_be_drawn(way):
    seen = make_seen(20, 50, most=30)
    full = Ragged.build(np.repeat(np.arange(20), 30), np.tile(np.arange(30), 20), 20)
    assert (draw(full, 50, 20) == np.arange(30, 50)).all()
    with pytest.raises(
        DataError,
        match=r"21 candidates were asked for, but a client has only 20 of 50 items .* ask for 20 or less.* \(candidates=20\)",
    ):
        draw(full, 50, 21)
    assert draw(seen, 50, 20).shape == (20, 20)


def test_clients_who_know_nearly_everything_do_not_draw_in_vain():
    class Counted:
        def __init__(self):
            self.rng, self.drawn = np.random.default_rng(0), 0

        def integers(self, low, high, shape):
            self.drawn += shape[0] * shape[1]
            return self.rng.integers(low, high, shape)

        def choice(self, *given, **options):
            return self.rng.choice(*given, **options)

    taken = np.concatenate([client * 20_000 + np.arange(30 * client, 20_000 - 30) for client in range(5)])
    counted = Counted()
    drawn = candidates._by_trial(counted, taken, 5, 20_000, 30)
    assert np.array_equal(np.sort(drawn[0]), np.arange(20_000 - 30, 20_000))
    assert counted.drawn == 0
    candidates._by_trial(counted, taken[:0], 5, 20_000, 30)
    assert 150 <= counted.drawn < 500


@pytest.mark.parametrize("crowded", [False, True])
def test_every_free_item_is_equally_likely(way, crowded):
    n, n_items, count = 4000, 60, 8
    own = np.arange(40 if crowded else 5)
    seen = Ragged.build(np.repeat(np.arange(n), len(own)), np.tile(own, n), n)
    drawn = draw(seen, n_items, count)
    found = np.bincount(drawn.ravel(), minlength=n_items)[len(own) :]
    share = count / len(found)
    z = (found - n * share) / np.sqrt(n * share * (1 - share))
    assert abs(z).max() < 4
    assert z.std() > 0.5
    # Pairs too: distinct draws that were dropped in the order of items would come together too often.
    together = ((drawn == len(own)).any(1) & (drawn == n_items - 1).any(1)).sum()
    both = share * (count - 1) / (len(found) - 1)
    assert abs(together - n * both) / np.sqrt(n * both) < 4


def test_draws_follow_ids_seed_and_stream(way):
    n, n_items = 1100, 500
    seen, rng = make_seen(n, n_items), np.random.default_rng(3)
    straight = draw(seen, n_items, 20)
    assert np.array_equal(draw(seen, n_items, 20), straight)
    assert (draw(seen, n_items, 20, seed=1) != straight).any(1).mean() > 0.99
    assert (draw(seen, n_items, 20, stream=3) != straight).any(1).mean() > 0.99
    # The same clients and items under other codes, as another order of rows would give them.
    users, items = rng.permutation(n), rng.permutation(n_items)
    coded = Ragged.build(users[seen.owners], items[seen.values], n)
    again = draw(coded, n_items, 20, user_rank=np.argsort(users), item_rank=np.argsort(items))
    assert np.array_equal(np.sort(np.argsort(items)[again[users]], axis=1), straight)
    assert len({row.tobytes() for row in straight}) == n, "clients of different chunks draw for themselves"


def test_which_way_is_taken_depends_on_size_alone():
    assert candidates._keys_for_all(6040, 3706, 99)
    assert candidates._keys_for_all(1 << 18, 1 << 10, 10)
    assert not candidates._keys_for_all(1 << 18, (1 << 10) + 1, 10)
    assert candidates._keys_for_all(10_000_000, 16 * 99 - 1, 99), "trials would often be in vain"
    assert not candidates._keys_for_all(10_000_000, 16 * 99, 99)


def big(n_users=60, n_items=4000, rows=20):
    rng = np.random.default_rng(0)
    items = np.concatenate([rng.choice(n_items, rows, replace=False) for _ in range(n_users)])
    users, times = np.repeat(np.arange(n_users, dtype=np.int32), rows), np.arange(n_users * rows)
    present, items = np.unique(items, return_inverse=True)
    return Interactions(
        users, items.astype(np.int32), None, times, tuple(range(n_users)), tuple(present.tolist()), "big"
    )


def test_splits_of_both_sizes_keep_their_hash(monkeypatch):
    """These may never change: a published split is known by its hash."""
    data, protocol = big(), fedrec.HONEST.with_options(candidates=30)
    assert protocol.split(data).hash.startswith("32be923a83a2c16e")
    monkeypatch.setattr(candidates, "_KEYS_IN_ALL", 1000)
    assert protocol.split(data).hash.startswith("0d7c883ecafd40e2")


def test_progress_is_told_to_the_end():
    told = []
    fedrec.HONEST.with_options(candidates=30).split(big(2000, 500), progress=lambda *news: told.append(news))
    words = list(dict.fromkeys(what for what, _, _ in told))
    assert words == ["filtering rows", "holding out rows", "drawing candidates", "hashing the split"]
    drawing = [(done, total) for what, done, total in told if what == "drawing candidates"]
    assert drawing == [(1024, 2000), (2000, 2000)] * 2
    assert told[-1][1:] == (1, 1)
