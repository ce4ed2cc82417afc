import numpy as np
import pytest

import fedrec
from fedrec.data import Interactions
from fedrec.data.training import Ragged
from fedrec.errors import DataError
from tests_reachable import reachable

PRESETS = [fedrec.HONEST, fedrec.PAPER, fedrec.PFEDREC, fedrec.HETEFEDREC]


def pairs(lists: Ragged) -> set[tuple[int, int]]:
    return set(zip(lists.owners.tolist(), lists.values.tolist(), strict=True))


def table(rows, timed=True):
    users, items, times = (np.array(column) for column in zip(*rows, strict=True))
    user_ids, users = np.unique(users, return_inverse=True)
    item_ids, items = np.unique(items, return_inverse=True)
    return Interactions(
        users.astype(np.int32),
        items.astype(np.int32),
        None,
        times.astype(np.int64) if timed else None,
        tuple(user_ids.tolist()),
        tuple(item_ids.tolist()),
        "hand",
    )


@pytest.mark.parametrize("preset", PRESETS, ids=lambda p: p.name)
def test_no_pair_is_in_two_parts_and_none_is_lost(demo, preset):
    split = preset.split(demo, seed=3)
    train, validation, test = (pairs(x) for x in (split.training.positives, split.validation.items, split.test.items))
    assert not train & validation
    assert not train & test
    assert not validation & test
    assert len(train | validation | test) == len(split.data)


def test_leave_one_out_holds_out_the_newest_two(demo, honest):
    newest = {}
    for user, item, time in zip(demo.users.tolist(), demo.items.tolist(), demo.timestamps.tolist(), strict=True):
        newest.setdefault(user, []).append((time, item))
    for user, rows in newest.items():
        rows.sort()
        assert honest.test.items[user].tolist() == [rows[-1][1]]
        assert honest.validation.items[user].tolist() == [rows[-2][1]]
        assert honest.training.positives[user].tolist() == [item for _, item in rows[:-2]]


@pytest.mark.parametrize(("ties", "expected"), [("last", 14), ("first", 13), ("item_id", 15)])
def test_tie_rules(ties, expected):
    rows = [(0, i, i) for i in range(10)] + [(0, 13, 50), (0, 15, 50), (0, 14, 50)]
    split = fedrec.HONEST.with_options(ties=ties, candidates=0).split(table(rows))
    assert split.data.item_ids[split.test.items[0][0]] == expected


def test_times_as_far_apart_as_whole_numbers_go():
    far = 2**63 - 1
    rows = [(u, i, i - far if i < 6 else far - 20 + i) for u in range(3) for i in range(12)]
    split = fedrec.HONEST.with_options(candidates=0).split(table(rows[::-1]))
    for u in range(3):
        assert split.data.item_ids[split.test.items[u][0]] == 11
        assert [split.data.item_ids[k] for k in split.training.positives[u]] == list(range(10))


def test_untimed_rules():
    rows = [(u, (7 * i + u) % 40, 0) for u in range(5) for i in range(12)]
    data = table(rows, timed=False)
    file = fedrec.HONEST.with_options(untimed="file", candidates=5).split(data)
    assert [file.data.item_ids[file.test.items[u][0]] for u in range(5)] == [(7 * 11 + u) % 40 for u in range(5)]
    item = fedrec.HONEST.with_options(untimed="item", candidates=5).split(data)
    for u in range(5):
        everything = np.concatenate([item.training.positives[u], item.validation.items[u], item.test.items[u]])
        assert item.test.items[u][0] == everything.max()
    drawn = fedrec.HONEST.with_options(candidates=5)
    assert drawn.split(data, 1).hash != drawn.split(data, 2).hash


def test_ratio_split_sizes(demo):
    split = fedrec.HETEFEDREC.split(demo, seed=0)
    n = np.bincount(split.data.users)
    assert (split.test.items.counts == n // 5).all()
    assert (split.validation.items.counts == (n - n // 5) // 10).all()


def test_global_time_split_puts_the_future_in_test(demo):
    split = fedrec.HETEFEDREC.with_options(holdout="global-time").split(demo)
    time = {(u, i): t for u, i, t in zip(split.data.users, split.data.items, split.data.timestamps, strict=True)}
    parts = [[time[p] for p in pairs(x)] for x in (split.training.positives, split.validation.items, split.test.items)]
    assert max(parts[0]) <= min(parts[1])
    assert max(parts[1]) <= min(parts[2])
    assert len(parts[2]) == pytest.approx(0.2 * len(split.data), rel=0.02)


def test_hash_is_stable_and_depends_on_content(demo, honest):
    assert honest.hash == fedrec.HONEST.split(demo, seed=0).hash
    assert honest.hash == "195218b5e265ec684b9a5f169dd0bb75eb59d594d7fb4b4e45915ddd238fe60c"
    assert honest.hash != fedrec.HONEST.split(demo, seed=1).hash
    assert honest.hash != fedrec.PAPER.split(demo, seed=0).hash


@pytest.mark.parametrize("preset", PRESETS, ids=lambda p: p.name)
def test_hash_does_not_depend_on_row_order(demo, preset):
    order = np.random.default_rng(1).permutation(len(demo))
    seen_users, seen_items = demo.users[order], demo.items[order]
    frame = {
        "user": [demo.user_ids[u] for u in seen_users],
        "item": [demo.item_ids[i] for i in seen_items],
        "timestamp": demo.timestamps[order].tolist(),
    }
    assert preset.split(fedrec.from_frame(frame), seed=5).hash == preset.split(demo, seed=5).hash


def test_candidates_are_distinct_and_never_touched(honest, paper):
    for split in (honest, paper):
        touched = split.data.n_items * split.data.users.astype(np.int64) + split.data.items
        for held in (split.validation, split.test):
            drawn = held.candidates
            assert drawn.shape == (split.data.n_users, 99)
            assert (np.diff(drawn, axis=1) > 0).all()
            keys = np.arange(split.data.n_users)[:, None] * split.data.n_items + drawn
            assert not np.isin(keys, touched).any()
    assert (paper.validation.candidates == paper.test.candidates).all()
    assert (honest.validation.candidates != honest.test.candidates).any()


def test_disjoint_candidates_have_no_item_in_common(demo):
    split = fedrec.PFEDREC.split(demo, seed=0)
    both = np.concatenate([split.validation.candidates, split.test.candidates], axis=1)
    assert all(len(set(row)) == 198 for row in both.tolist())


def test_candidates_are_uniform(demo):
    split = fedrec.HONEST.split(demo, seed=2)
    expected = np.zeros(demo.n_items)
    for user in range(demo.n_users):
        free = np.setdiff1d(np.arange(demo.n_items), demo.items[demo.users == user])
        expected[free] += 99 / len(free)
    drawn = np.bincount(split.test.candidates.ravel(), minlength=demo.n_items)
    assert abs((drawn - expected) / np.sqrt(expected)).max() < 4.5


def test_pool_excludes_training_items_only_unless_the_protocol_leaks(honest, paper):
    for user in (0, 17, 499):
        train = set(honest.training.positives[user].tolist())
        assert set(honest.training.excluded[user].tolist()) == train
        held = {*paper.validation.items[user].tolist(), *paper.test.items[user].tolist()}
        assert set(paper.training.excluded[user].tolist()) == set(paper.training.positives[user].tolist()) | held


def test_a_trainer_cannot_reach_held_out_items(demo):
    split = fedrec.HONEST.split(demo, seed=4)
    handed = reachable(split.training)
    assert any(thing is split.training.positives for thing in handed), "the walk must find what is there"
    secret = (
        split,
        split.test,
        split.validation,
        split.test.items.values,
        split.test.candidates,
        split.data,
        split.data.items,
    )
    assert not any(thing is hidden for thing in handed for hidden in secret)
    for thing in handed:
        if isinstance(thing, np.ndarray) and thing.dtype.kind == "i":
            assert thing.size != len(split.data), "no array may hold all rows"
            assert not (thing.shape == split.test.items.values.shape and (thing == split.test.items.values).all())


def test_clear_errors(demo):
    with pytest.raises(DataError, match="candidates were asked for"):
        fedrec.HONEST.with_options(candidates=390).split(demo)
    with pytest.raises(DataError, match="leave-one-out needs 3 rows"):
        fedrec.HONEST.with_options(min_interactions=1, candidates=0).split(table([(0, 1, 1), (0, 2, 2)]))
    with pytest.raises(DataError, match="no timestamps"):
        fedrec.HETEFEDREC.with_options(holdout="global-time").split(table([(0, i, 1) for i in range(9)], timed=False))
    with pytest.raises(DataError, match="no row is left"):
        fedrec.HONEST.with_options(min_interactions=1000).split(demo)


def test_repeated_rows_can_leave_the_test_item_in_training():
    rows = [(u, i, i) for u in range(3) for i in range(30)] + [(0, 5, 100)]
    kept = fedrec.PAPER.with_options(candidates=0, select_ranking="full").split(table(rows))
    merged = fedrec.HONEST.with_options(candidates=0).split(table(rows))
    assert kept.held_out_in_training == 1
    assert merged.held_out_in_training == 0
