import numpy as np
import pytest

import fedrec
from fedrec.errors import ConfigError, DataError
from fedrec.methods.references import Popularity
from fedrec.protocol.given import GIVEN, given_split


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    pairs = [(f"u{u}", int(i)) for u in range(12) for i in rng.choice(30, 14, replace=False)]
    test = [pair for number, pair in enumerate(pairs) if number % 14 < 3]
    data = fedrec.from_frame({"user": [u for u, _ in pairs], "item": [i for _, i in pairs]})
    path = tmp_path / "test.csv"
    path.write_text("user,item\n" + "".join(f"{u},{i}\n" for u, i in test))
    return data, path, set(test)


def pairs_of(split, lists):
    data = split.data
    return {
        (data.user_ids[u], data.item_ids[i]) for u, i in zip(lists.owners.tolist(), lists.values.tolist(), strict=True)
    }


def test_the_test_part_is_the_given_one(files):
    data, path, test = files
    split = given_split(data, path)
    train, validation = pairs_of(split, split.training.positives), pairs_of(split, split.validation.items)
    assert pairs_of(split, split.test.items) == test
    assert not train & validation
    assert not (train | validation) & test
    assert len(train | validation | test) == len(data)
    assert len(validation) == 12, "a tenth of eleven pairs per user"
    assert pairs_of(split, split.training.excluded) == train, "negatives may be held-out items"


def test_it_depends_on_the_seed_and_not_on_the_order_of_rows(files):
    data, path, _ = files
    order = np.random.default_rng(1).permutation(len(data))
    shuffled = fedrec.from_frame(
        {
            "user": [data.user_ids[u] for u in data.users[order]],
            "item": [data.item_ids[i] for i in data.items[order]],
        }
    )
    assert given_split(data, path).hash == given_split(shuffled, path).hash
    assert given_split(data, path).hash != given_split(data, path, seed=1).hash


def test_a_method_runs_on_it_also_without_validation(files):
    data, path, _ = files
    published = GIVEN.with_options(validation_ratio=0.0, select_on="test")
    split = given_split(data, path, published)
    assert len(split.validation.items.values) == 0
    assert len(split.training.positives.values) == 12 * 11
    run = fedrec.train(Popularity(), split, device="cpu", progress=False)
    assert 0 < run.test["full"]["recall@20"] <= 1


def test_mistakes_are_one_sentence(files, tmp_path):
    data, path, _ = files
    with pytest.raises(ConfigError, match="candidates=0"):
        given_split(data, path, fedrec.HONEST)
    with pytest.raises(ConfigError, match="raise validation_ratio"):
        given_split(data, path, GIVEN.with_options(validation_ratio=0.0))
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("user,item\nu0,99\n")
    with pytest.raises(DataError, match="the test pair of user u0 and item 99 is not in"):
        given_split(data, wrong)


def test_rows_read_before_serve_as_test_part_and_unknown_ones_are_named(files):
    data, path, test = files
    rows = fedrec.from_frame({"user": [u for u, _ in sorted(test)], "item": [i for _, i in sorted(test)]}, name="given")
    split = given_split(data, rows)
    assert split.hash == given_split(data, path).hash
    assert (split.seed, split.protocol, split.data.name) == (0, GIVEN, data.name)
    assert pairs_of(split, split.touched) == pairs_of(split, split.test.items) | pairs_of(
        split, split.training.positives
    ) | pairs_of(split, split.validation.items)
    own = {item for user, item in pairs_of(split, split.touched) if user == "u1"}
    foreign = min(set(range(30)) - own)
    for user, item in (("nobody", 3), ("u1", foreign), ("u1", 77)):
        first = sorted(test)[0]
        bad = fedrec.from_frame({"user": [first[0], user, "x"], "item": [first[1], item, 1]}, name="given")
        with pytest.raises(DataError, match=rf"^given: the test pair of user {user} and item {item} is not in "):
            given_split(data, bad)


def test_a_share_of_each_users_other_pairs_is_for_validation(files):
    """Rounded down, and another one for every seed."""
    data, path, _ = files
    splits = [given_split(data, path, GIVEN.with_options(validation_ratio=0.3), seed) for seed in range(40)]
    for split in splits:
        assert split.validation.items.counts.tolist() == [3] * 12
        assert split.test.items.counts.tolist() == [3] * 12
    drawn = [pairs_of(split, split.validation.items) for split in splits]
    often = {pair: sum(pair in some for some in drawn) for pair in set().union(*drawn)}
    assert len(often) == 12 * 11, "every pair is held out for some seed"
    assert max(often.values()) < 26, "each is for 3 of 11: 10.9, give or take 2.8"


def test_repeated_and_zero_rows_of_the_data_count_once_or_not(files):
    data, path, _ = files
    users, items = [data.user_ids[u] for u in data.users], [data.item_ids[i] for i in data.items]
    ratings = [1.0] * len(users) + [1.0, 0.0]
    more = fedrec.from_frame({"user": [*users, users[5], "u0"], "item": [*items, items[5], 999], "rating": ratings})
    split = given_split(more, path)
    assert split.hash == given_split(data, path).hash
    assert len(split.data) == len(data)
