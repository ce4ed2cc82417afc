import numpy as np
import pytest

from fedrec.data import Interactions, filter_interactions, from_frame, stats
from fedrec.errors import ConfigError, DataError

# u has 4 rows on 3 items, v has 2 rows, w has 3 rows one of which is a zero; the newest row of w is tied.
ROWS = [
    ("v", "x", 1.0, 5),
    ("u", "a", 2.0, 9),
    ("u", "b", 3.0, 8),
    ("w", "b", 0.0, 1),
    ("u", "a", 4.0, 7),
    ("w", "c", 5.0, 6),
    ("u", "c", 1.0, 7),
    ("w", "a", 2.0, 6),
    ("v", "c", 1.0, 4),
]


def make(rows=ROWS, columns=("user", "item", "rating", "timestamp")) -> Interactions:
    return from_frame({name: [row[k] for row in rows] for k, name in enumerate(columns)})


def back(data: Interactions):
    users = [data.user_ids[code] for code in data.users]
    items = [data.item_ids[code] for code in data.items]
    times = [None] * len(data) if data.timestamps is None else data.timestamps.tolist()
    return list(zip(users, items, times, strict=True))


def test_nothing_asked_changes_nothing():
    data = filter_interactions(make())
    assert back(data) == [(u, i, t) for u, i, _, t in ROWS]
    assert data.ratings.tolist() == [row[2] for row in ROWS]


def test_where_nothing_is_dropped_ids_are_still_coded_by_first_appearance():
    codes = np.array([2, 2, 0], np.int32)
    data = filter_interactions(Interactions(codes, codes.copy(), None, None, ("a", "b", "c"), (1, 2, 3)))
    assert (data.user_ids, data.item_ids) == (("c", "a"), (3, 1))
    assert data.users.tolist() == data.items.tolist() == [0, 0, 1]
    unused = Interactions(np.array([0, 1], np.int32), codes[:2].copy(), None, None, ("a", "b", "c"), (1, 2, 3))
    assert filter_interactions(unused).user_ids == ("a", "b")


def test_minimum_by_rows_codes_anew():
    data = filter_interactions(make(), min_per_user=3)
    assert back(data) == [(u, i, t) for u, i, _, t in ROWS if u != "v"]
    assert data.user_ids == ("u", "w")
    assert data.item_ids == ("a", "b", "c")
    assert data.users.tolist() == [0, 0, 1, 0, 1, 0, 1]


def test_minimum_by_distinct_pairs():
    assert filter_interactions(make(), min_per_user=4).user_ids == ("u",)
    with pytest.raises(DataError, match=r"no row is left after filtering: kept 0 of 3 users.* 4 pairs"):
        filter_interactions(make(), min_per_user=4, count="pairs")


def test_positive_rows_count_before_the_minimum():
    data = filter_interactions(make(), positive_only=True, min_per_user=3)
    assert data.user_ids == ("u",)


def test_without_ratings_every_row_is_positive():
    data = make([row[:2] for row in ROWS], ("user", "item"))
    assert len(filter_interactions(data, positive_only=True)) == len(ROWS)


def test_merge_keeps_the_oldest_row_in_place():
    data = filter_interactions(make(), duplicates="merge")
    assert back(data) == [(u, i, t) for u, i, _, t in ROWS if (u, i, t) != ("u", "a", 9)]
    assert data.ratings[data.timestamps == 7].tolist() == [4.0, 1.0]
    assert data.item_ids[:3] == ("x", "b", "a")


def test_merge_keeps_the_first_row_among_equals_and_without_times():
    twice = [("u", "a", 1.0, 5), ("u", "a", 2.0, 5), ("u", "b", 3.0, 1)]
    assert filter_interactions(make(twice), duplicates="merge").ratings.tolist() == [1.0, 3.0]
    untimed = make([row[:3] for row in twice], ("user", "item", "rating"))
    assert filter_interactions(untimed, duplicates="merge").ratings.tolist() == [1.0, 3.0]


def test_merge_comes_before_the_minimum():
    left = r"kept 0 of .* with fewer than 4 rows \(min_interactions\); relax the filter \(min_interactions='N'\)"
    with pytest.raises(DataError, match=left):
        filter_interactions(make(), duplicates="merge", min_per_user=4)


def test_where_all_is_rated_0_no_number_of_rows_helps():
    with pytest.raises(DataError, match=r"dropped 2 rows rated 0; read no such column \(rating=None\)\."):
        filter_interactions(make([("u", "a", 0.0, 1), ("u", "b", 0.0, 5)]), positive_only=True, min_per_user=4)


def test_merge_after_dropping_zeros_keeps_a_positive_row():
    rows = [("u", "a", 0.0, 1), ("u", "a", 2.0, 5)]
    assert filter_interactions(make(rows), positive_only=True, duplicates="merge").ratings.tolist() == [2.0]


@pytest.mark.parametrize("options", [{"duplicates": "merged"}, {"count": "row"}])
def test_unknown_words_suggest_the_nearest(options):
    with pytest.raises(ConfigError, match=r"did you mean '(merge|rows)'"):
        filter_interactions(make(), **options)


def test_agrees_with_a_plain_loop():
    rng = np.random.default_rng(3)
    rows = [(int(u), int(i), float(r), int(t)) for u, i, r, t in rng.integers(0, (20, 15, 4, 9), (300, 4))]
    data = filter_interactions(make(rows), positive_only=True, duplicates="merge", min_per_user=8)
    earliest: dict[tuple[int, int], int] = {}
    for k, (u, i, r, t) in enumerate(rows):
        if r > 0 and ((u, i) not in earliest or t < rows[earliest[u, i]][3]):
            earliest[u, i] = k
    kept = [rows[k] for k in sorted(earliest.values())]
    many = {u for u, *_ in kept if sum(other == u for other, *_ in kept) >= 8}
    assert 0 < len(many) < 20
    assert back(data) == [(u, i, t) for u, i, _, t in kept if u in many]
    assert data.user_ids == tuple(dict.fromkeys(u for u, *_ in kept if u in many))


def test_stats():
    assert stats(make()) == {
        "users": 3,
        "items": 4,
        "rows": 9,
        "distinct_pairs": 8,
        "sparsity": pytest.approx(1 - 8 / 12),
        "min_per_user": 2,
        "mean_per_user": 3.0,
        "max_per_user": 4,
        "has_timestamps": True,
        "newest_ties": 1,
    }
    untimed = stats(make([row[:2] for row in ROWS], ("user", "item")))
    assert untimed["has_timestamps"] is False
    assert untimed["newest_ties"] is None


def test_rows_that_all_stay_are_contiguous_and_coded_in_32_bits():
    codes = np.array([[0, 0], [1, 1], [0, 1], [1, 0]])
    kept = filter_interactions(
        Interactions(codes[:, 0], codes[:, 1], None, None, ("u", "v"), ("a", "b")), min_per_user=1
    )
    for array in (kept.users, kept.items):
        assert array.dtype == np.int32
        assert array.flags.c_contiguous
    assert kept.users.tolist() == [0, 1, 0, 1]
