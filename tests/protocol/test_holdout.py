"""Which rows are held out, row by row on data small enough to see it."""

import numpy as np
import pytest

import fedrec
from fedrec.data import Interactions
from fedrec.errors import ConfigError
from fedrec.protocol.holdout import TEST, TRAIN, VALIDATION, canonical, parts, time_order


def data(users, items, times=None, ratings=None):
    """Ids are letters for users and whole numbers for items; rows in the order given."""
    user_ids, item_ids = list(dict.fromkeys(users)), list(dict.fromkeys(items))
    return Interactions(
        np.array([user_ids.index(u) for u in users], np.int32),
        np.array([item_ids.index(i) for i in items], np.int32),
        None if ratings is None else np.array(ratings, np.float64),
        None if times is None else np.array(times, np.int64),
        tuple(user_ids),
        tuple(item_ids),
        "hand",
    )


def held(found, choices, seed=0):
    """Part of every row, in the order of the file."""
    order, part = parts(found, choices, seed)
    assert sorted(order.tolist()) == list(range(len(found)))
    by_row = np.empty(len(found), np.int8)
    by_row[order] = part
    return by_row.tolist()


RATIO = fedrec.HETEFEDREC.with_options(order="time", test_ratio=0.2, validation_ratio=0.25)


def test_ranks_of_ids_follow_their_order():
    assert canonical((30, 4, 200)).tolist() == [1, 0, 2]
    assert canonical(("b", "B", "a10", "a9")).tolist() == [3, 0, 1, 2]


@pytest.mark.parametrize("choices", [fedrec.HONEST, RATIO], ids=["one", "ratio"])
def test_a_users_newest_rows_are_held_out(choices):
    """Five rows of b, newest first, between the rows of a: one for test, one for validation."""
    rows = data("abababababaaaaa", range(15), times=[1, 9, 2, 8, 3, 7, 4, 6, 5, 5, 6, 7, 8, 9, 10])
    found = held(rows, choices)
    of_b = [found[row] for row in (1, 3, 5, 7, 9)]
    assert of_b == [TEST, VALIDATION, TRAIN, TRAIN, TRAIN]
    of_a = [found[row] for row in (0, 2, 4, 6, 8, 10, 11, 12, 13, 14)]
    if choices is RATIO:
        assert of_a == [TRAIN] * 6 + [VALIDATION] * 2 + [TEST] * 2
    else:
        assert of_a == [TRAIN] * 8 + [VALIDATION, TEST]


@pytest.mark.parametrize(
    ("rows", "test", "validation", "expected"),
    [
        (15, 0.2, 0.25, (3, 3)),
        (14, 0.2, 0.25, (2, 3)),
        (10, 0.3, 0.1, (3, 0)),
        (4, 0.2, 0.25, (0, 1)),
        (10, 0.7, 0.0, (7, 0)),
    ],
)
def test_shares_are_rounded_down_and_exact_ones_are_exact(rows, test, validation, expected):
    choices = RATIO.with_options(test_ratio=test, validation_ratio=validation, select_on="test")
    found = held(data("a" * rows, range(rows), range(rows)), choices)
    assert (found.count(TEST), found.count(VALIDATION)) == expected
    assert found == sorted(found, key=[TRAIN, VALIDATION, TEST].index)


def test_the_latest_fifth_of_all_rows_is_test_whoever_they_are_of():
    times = np.random.default_rng(0).permutation(100)
    choices = RATIO.with_options(holdout="global-time", validation_ratio=0.1)
    found = held(data("abcd" * 25, range(100), times), choices)
    for time, part in zip(times, found, strict=True):
        assert part == (TEST if time > 79 else VALIDATION if time > 71 else TRAIN)


def test_rows_of_one_time_are_on_one_side():
    choices = RATIO.with_options(holdout="global-time", validation_ratio=0.5)
    found = held(data("a" * 12, range(12), [1] * 4 + [2] * 3 + [3] * 4 + [4]), choices)
    assert found == [TRAIN] * 7 + [VALIDATION] * 4 + [TEST]


@pytest.mark.parametrize(
    ("ties", "order"),
    [("last", [0, 1, 2, 3, 4]), ("first", [0, 3, 2, 1, 4]), ("item_id", [0, 2, 3, 1, 4])],
)
def test_rows_of_the_same_time_by_rule(ties, order):
    rows = data("aaaaa", [7, 9, 2, 5, 1], [1, 5, 5, 5, 6])
    assert time_order(rows, fedrec.HONEST.with_options(ties=ties), 0).tolist() == order


@pytest.mark.parametrize(
    ("untimed", "ties", "order"),
    [
        ("file", "last", [0, 2, 4, 1, 3]),
        ("file", "first", [0, 2, 4, 1, 3]),
        ("item", "last", [4, 0, 2, 1, 3]),
        ("file", "item_id", [2, 4, 0, 3, 1]),
    ],
)
def test_rows_without_time_by_rule(untimed, ties, order):
    """The numbers of items (7 is the first, 9 the second, 5 the third) are in another order than their ids."""
    users, items = np.array([0, 1, 0, 1, 0], np.int32), np.array([1, 0, 2, 2, 0], np.int32)
    rows = Interactions(users, items, None, None, ("a", "b"), (7, 9, 5), "hand")
    assert time_order(rows, fedrec.HONEST.with_options(untimed=untimed, ties=ties), 0).tolist() == order


@pytest.mark.parametrize("options", [{"order": "random"}, {"untimed": "random"}])
def test_random_rows_are_drawn_from_the_seed_and_evenly(options):
    users, times = "ab" * 10, None if "untimed" in options else range(20)
    choices = fedrec.HONEST.with_options(**options)
    tests = np.array(
        [[part == TEST for part in held(data(users, range(20), times), choices, seed)] for seed in range(300)]
    )
    assert (tests[:, ::2].sum(1) == 1).all()
    assert (tests[:, 1::2].sum(1) == 1).all()
    assert abs(tests.sum(0) - 30).max() < 5 * 30**0.5
    assert held(data(users, range(20), times), choices, 7) == held(data(users, range(20), times), choices, 7)


def test_random_rows_follow_ids_and_then_the_file():
    """Three rows of one pair are told apart by their place alone."""
    items = [3, 1, 1, 1, 2, 5, 4, 8, 9, 6, 7, 0]
    choices = fedrec.HONEST.with_options(order="random")
    rows = data("a" * 12, items, range(12))
    move = [5, 1, 2, 0, 3, 4, *range(11, 5, -1)]
    moved = data("a" * 12, [items[k] for k in move], range(12))
    for seed in range(20):
        assert held(moved, choices, seed) == [held(rows, choices, seed)[k] for k in move]


def test_what_users_touched_goes_beyond_what_was_kept():
    """Rows rated 0 and repeated ones are no training rows, but nothing new either."""
    users, items, ratings = "a" * 12 + "b" * 12, [*range(12), *range(12)], [0] * 2 + [5] * 10 + [1] * 12
    split = fedrec.HONEST.with_options(candidates=0).split(data(users, items, range(24), ratings))
    a, b = (split.data.user_ids.index(user) for user in "ab")
    names = [sorted(split.data.item_ids[i] for i in split.touched[user]) for user in (a, b)]
    assert names == [list(range(12)), list(range(12))]
    assert len(split.training.positives[a]) == 8
    assert 0 not in {split.data.item_ids[i] for i in split.training.excluded[a]}


def test_items_nobody_kept_are_no_items():
    users, items, ratings = "a" * 12, [*range(11), 99], [5] * 11 + [0]
    split = fedrec.HONEST.with_options(candidates=0).split(data(users, items, range(12), ratings))
    assert split.data.n_items == 11
    assert len(split.touched[0]) == 11


def test_a_split_says_what_it_is(demo):
    honest, leaking = fedrec.HONEST.split(demo, 3), fedrec.PFEDREC.split(demo, 3)
    assert repr(honest) == f"Split('demo', protocol='honest', seed=3, hash={honest.hash[:12]})"
    assert repr(leaking) == f"Split('demo', protocol='pfedrec', seed=3, leaks, hash={leaking.hash[:12]})"
    assert fedrec.HONEST.split(demo).seed == 0
    assert (honest.seed, honest.protocol) == (3, fedrec.HONEST)


def test_the_hash_is_of_all_that_matters_and_not_of_the_protocols_name(demo, honest):
    assert fedrec.Protocol(name="other").split(demo).hash == honest.hash
    for options in ({"rank_ties": "pessimistic"}, {"candidates": 98}, {"candidate_draw": "shared"}, {"pool": "all"}):
        assert fedrec.HONEST.with_options(**options).split(demo).hash != honest.hash


def test_options_by_mistake_are_one_sentence():
    with pytest.raises(ConfigError, match=r"^unknown protocol option 'name'"):
        fedrec.HONEST.with_options(name="mine")
    with pytest.raises(ConfigError, match=r"^protocol option min_interactions: Input should be .* 1\.$"):
        fedrec.HONEST.with_options(min_interactions=0)
    with pytest.raises(ConfigError, match=r"^protocol: select_metric 'hr@50' is not among"):
        fedrec.HONEST.with_options(select_metric="hr@50")
    with pytest.raises(ConfigError, match=r"^protocol option metrics\.1: Input should be a valid string\.$"):
        fedrec.HONEST.with_options(metrics=("hr@10", 3))
    assert fedrec.preset(fedrec.PAPER) is fedrec.PAPER
    assert fedrec.preset("paper") is fedrec.PAPER
