"""A packed split is the same split again, or it is refused."""

import numpy as np
import pytest

import fedrec
from fedrec.protocol.packed import PARTS, NoSplitError, pack_split, unpack_split

PRESETS = [fedrec.HONEST, fedrec.PAPER, fedrec.HETEFEDREC]


def unpack(arrays, split, **other):
    known = {"seed": split.seed, "name": split.data.name, "digest": split.hash} | other
    return unpack_split(arrays, split.data.user_ids, split.data.item_ids, split.protocol, **known)


def same_lists(a, b):
    return np.array_equal(a.offsets, b.offsets) and np.array_equal(a.values, b.values)


@pytest.mark.parametrize("preset", PRESETS, ids=lambda p: p.name)
def test_what_comes_back_is_what_was_packed(demo, preset):
    split = preset.split(demo, seed=3)
    arrays = pack_split(split)
    again = unpack({name: array.astype(np.int64) for name, array in arrays.items()}, split)
    assert (again.hash, again.seed, again.protocol, again.data.name) == (split.hash, 3, preset, demo.name)
    assert (again.data.user_ids, again.data.item_ids) == (split.data.user_ids, split.data.item_ids)
    assert (again.data.users.dtype, again.data.items.dtype) == (np.int32, np.int32)
    assert sorted(zip(again.data.users, again.data.items, strict=True)) == sorted(
        zip(split.data.users, split.data.items, strict=True)
    )
    assert same_lists(again.training.positives, split.training.positives)
    assert same_lists(again.training.excluded, split.training.excluded)
    assert (again.training.n_clients, again.training.n_items) == (split.training.n_clients, split.training.n_items)
    assert same_lists(again.touched, split.touched)
    for found, packed in ((again.validation, split.validation), (again.test, split.test)):
        assert same_lists(found.items, packed.items)
        if packed.candidates is None:
            assert found.candidates is None
        else:
            assert found.candidates.dtype == np.int32
            assert np.array_equal(found.candidates, packed.candidates)


@pytest.mark.parametrize("name", [f"{part}.{kind}" for part in PARTS for kind in ("offsets", "items")])
def test_a_missing_array_is_named(honest, name):
    arrays = pack_split(honest)
    del arrays[name]
    with pytest.raises(NoSplitError, match=f"^{name} is missing$"):
        unpack(arrays, honest)


def moved(at, by):
    def change(array):
        array[at] += by

    return change


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        ("offsets", lambda a: a[:-1]),
        ("offsets", lambda a: np.append(a, a[-1])),
        ("offsets", lambda a: a.reshape(1, -1)),
        ("offsets", moved(0, 1)),
        ("offsets", moved(-1, 1)),
        ("offsets", moved(-1, -1)),
        ("offsets", moved(4, 1 << 20)),
        ("items", lambda a: a.reshape(-1, 1)),
        ("items", lambda a: a[:-1]),
        ("items", moved(-1, -(1 << 20))),
        ("items", lambda a: np.where(np.arange(len(a)) == 3, -1, a)),
        ("items", lambda a: np.where(np.arange(len(a)) == 3, 400, a)),
    ],
)
def test_lists_that_fit_no_users_and_items_are_refused(honest, part, kind, damage):
    """Demo data have 400 items, so there is none with number 400 (nor -1)."""
    arrays = pack_split(honest)
    array = arrays[f"{part}.{kind}"].copy()
    changed = damage(array)
    arrays[f"{part}.{kind}"] = array if changed is None else changed
    with pytest.raises(NoSplitError, match=f"^{part} does not fit users and items$"):
        unpack(arrays, honest)


@pytest.mark.parametrize("part", ["validation", "test"])
@pytest.mark.parametrize(
    "damage",
    [lambda a: a[:-1], lambda a: a.ravel(), lambda a: np.where(a == a.max(), 400, a), lambda a: a - a.min() - 1],
)
def test_candidates_that_fit_no_users_and_items_are_refused(honest, part, damage):
    arrays = pack_split(honest)
    arrays[f"{part}.candidates"] = damage(arrays[f"{part}.candidates"])
    with pytest.raises(NoSplitError, match=r"^candidates do not fit users and items$"):
        unpack(arrays, honest)


def test_the_first_and_the_last_item_are_items(honest):
    """Every item number from the first to the last occurs, in lists and among candidates."""
    arrays = pack_split(honest)
    for name in ("training.items", "touched.items", "test.candidates", "validation.candidates"):
        assert (arrays[name].min(), arrays[name].max()) == (0, honest.data.n_items - 1), name
    assert unpack(arrays, honest).hash == honest.hash


@pytest.mark.parametrize("part", ["training", "validation", "test"])
def test_another_content_has_another_hash(honest, part):
    arrays = pack_split(honest)
    arrays[f"{part}.items"] = (arrays[f"{part}.items"] + 1) % honest.data.n_items
    with pytest.raises(NoSplitError, match=r"^its hash is another one$"):
        unpack(arrays, honest)


@pytest.mark.parametrize("other", [{"seed": 1}, {"digest": "0" * 64}], ids=lambda other: next(iter(other)))
def test_another_seed_or_hash_is_another_split(honest, other):
    with pytest.raises(NoSplitError, match=r"^its hash is another one$"):
        unpack(pack_split(honest), honest, **other)


def test_a_split_of_no_held_out_items_can_be_packed(demo):
    """Without validation a part is empty."""
    protocol = fedrec.HETEFEDREC.with_options(validation_ratio=0.0, select_on="test")
    split = protocol.split(demo)
    assert len(split.validation.items.values) == 0
    assert unpack(pack_split(split), split).hash == split.hash
