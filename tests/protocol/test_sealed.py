"""A sealed split is the same split without its test part."""

import numpy as np
import pytest

import fedrec
from fedrec.protocol.sealed import sealed


def pairs(lists):
    return set(zip(lists.owners.tolist(), lists.values.tolist(), strict=True))


@pytest.mark.parametrize("preset", [fedrec.HONEST, fedrec.PAPER, fedrec.HETEFEDREC], ids=lambda p: p.name)
def test_training_and_validation_stay_and_nothing_tells_of_the_test_items(demo, preset):
    split = preset.split(demo, seed=3)
    found, held = sealed(split), pairs(split.test.items)
    left = pairs(split.training.positives) | pairs(split.validation.items)
    assert pairs(found.training.positives) == pairs(split.training.positives)
    assert pairs(found.validation.items) == pairs(split.validation.items)
    assert found.validation.candidates is split.validation.candidates
    assert set(zip(found.data.users.tolist(), found.data.items.tolist(), strict=True)) == left
    assert pairs(found.training.excluded) == (left if preset.pool == "all" else pairs(split.training.positives))
    assert pairs(found.touched) == left
    assert not left & held
    assert len(found.test.items) == split.data.n_users
    assert len(found.test.items.values) == 0
    assert found.test.candidates is None
    assert (found.seed, found.data.user_ids, found.data.item_ids) == (3, split.data.user_ids, split.data.item_ids)
    assert found.protocol.select_on == "validation"
    assert found.protocol.name == ("paper*" if preset is fedrec.PAPER else preset.name)


def test_ratings_and_times_stay_with_their_rows(demo):
    rated = fedrec.from_frame(
        {
            "user": [demo.user_ids[u] for u in demo.users],
            "item": [demo.item_ids[i] for i in demo.items],
            "rating": (1.0 + np.arange(len(demo))).tolist(),
            "timestamp": demo.timestamps.tolist(),
        }
    )
    split = fedrec.HONEST.split(rated)
    found = sealed(split).data
    assert len(found) == len(split.data) - split.data.n_users
    rows = (found.ratings - 1).astype(int)
    assert found.timestamps.tolist() == demo.timestamps[rows].tolist()
    assert [found.user_ids[u] for u in found.users] == [demo.user_ids[u] for u in demo.users[rows]]
    assert [found.item_ids[i] for i in found.items] == [demo.item_ids[i] for i in demo.items[rows]]


def test_a_sealed_split_has_a_hash_of_its_own(demo, honest):
    assert sealed(honest).hash not in (honest.hash, sealed(fedrec.HONEST.split(demo, seed=1)).hash)
    assert sealed(honest).hash == sealed(fedrec.HONEST.split(demo, seed=0)).hash
