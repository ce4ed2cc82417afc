"""The order of time in a training view, which no order of rows in a file can change."""

import numpy as np
import pytest

import fedrec
from fedrec.data import Interactions


def frame(data, order):
    return fedrec.from_frame(
        {
            "user": [data.user_ids[u] for u in data.users[order]],
            "item": [data.item_ids[i] for i in data.items[order]],
            "timestamp": data.timestamps[order].tolist(),
        }
    )


def coarse(demo):
    """The embedded data with times so coarse that most rows have company."""
    return Interactions(
        demo.users, demo.items, None, demo.timestamps // 500_000, demo.user_ids, demo.item_ids, "coarse"
    )


def by_name(split):
    view, data = split.training, split.data
    return {data.user_ids[u]: [data.item_ids[i] for i in view.history[u]] for u in range(view.n_clients)}


def test_histories_are_the_training_items_oldest_first(demo, honest):
    time = {
        (u, i): t for u, i, t in zip(demo.users.tolist(), demo.items.tolist(), demo.timestamps.tolist(), strict=True)
    }
    for user in range(honest.training.n_clients):
        own = honest.training.history[user].tolist()
        assert sorted(own) == sorted(honest.training.positives[user].tolist())
        times = [time[user, item] for item in own]
        assert times == sorted(times)


def test_rows_of_one_moment_are_shuffled_and_the_order_of_the_file_does_not_matter(demo):
    data, protocol = coarse(demo), fedrec.HONEST.with_options(ties="item_id", candidates=10)
    split = protocol.split(data, seed=0)
    order = np.random.default_rng(1).permutation(len(data))
    assert by_name(protocol.split(frame(data, order), seed=0)) == by_name(split)
    assert by_name(protocol.split(data, seed=1)) != by_name(split)
    # Neither by item nor by row: the order inside a moment differs from both.
    rows = [split.training.history[u].tolist() for u in range(split.training.n_clients)]
    files = [split.training.positives[u].tolist() for u in range(split.training.n_clients)]
    assert sum(a != b for a, b in zip(rows, files, strict=True)) > len(rows) / 2


def test_random_parts_keep_the_order_of_time(demo):
    split = fedrec.HETEFEDREC.split(demo, seed=0)
    time = {(u, i): t for u, i, t in zip(split.data.users, split.data.items, split.data.timestamps, strict=True)}
    for user in range(split.training.n_clients):
        times = [time[user, item] for item in split.training.history[user]]
        assert times == sorted(times)


def test_a_repeated_item_counts_where_it_came_first():
    rows = [(0, i, i) for i in range(12)] + [(0, 3, 50), (0, 1, 51), (0, 20, 60), (0, 21, 61)]
    table = {name: [row[k] for row in rows] for k, name in enumerate(("user", "item", "timestamp"))}
    protocol = fedrec.PAPER.with_options(candidates=0, select_ranking="full", select_metric="hr@10")
    split = protocol.split(fedrec.from_frame(table))
    assert [split.data.item_ids[i] for i in split.training.history[0]] == list(range(12))
    assert len(split.training.positives[0]) == 14


def test_data_without_time_have_no_history(demo):
    bare = Interactions(demo.users, demo.items, None, None, demo.user_ids, demo.item_ids, "bare")
    assert fedrec.HONEST.split(bare).training.history is None


@pytest.mark.parametrize("name", ["fedslist", "slist"])
def test_two_orders_of_a_file_give_the_same_result(demo, name):
    data, protocol = coarse(demo), fedrec.HONEST.with_options(ties="item_id")
    order = np.random.default_rng(2).permutation(len(data))
    results = [
        fedrec.train(fedrec.create(name, lam=30, a=1), protocol.split(d, seed=0), progress=False).result
        for d in (data, frame(data, order))
    ]
    assert results[0].split_hash == results[1].split_hash
    for kind in ("sampled", "full"):
        one, other = (getattr(result.test, kind) for result in results)
        assert one == pytest.approx(other, abs=1e-9)
