"""What holds for every split of any data under any choices: properties, checked on what Hypothesis makes up."""

from collections import Counter

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedrec
from fedrec.data import Interactions
from fedrec.errors import DataError
from fedrec.protocol.split import Split
from fedrec.sampling.negatives import Sampler

ITEMS = 60

SOME = settings(max_examples=40, deadline=None, derandomize=True)


@st.composite
def rows(draw):
    """Rows of up to six users with up to a third of the items each, some of them repeated, in any order."""
    found = []
    for user in range(draw(st.integers(1, 6))):
        items = draw(st.lists(st.integers(0, ITEMS // 3), min_size=3, max_size=20))
        found += [(f"u{user}", f"i{(item * 3 + user) % ITEMS}") for item in items]
    found += [("most", f"i{item}") for item in range(ITEMS - 20)] if draw(st.booleans()) else []
    found = draw(st.permutations(found))
    frame = {"user": [user for user, _ in found], "item": [item for _, item in found]}
    if draw(st.booleans()):
        frame["rating"] = draw(st.lists(st.integers(0, 5), min_size=len(found), max_size=len(found)))
    if draw(st.booleans()):
        frame["timestamp"] = draw(st.lists(st.integers(0, 9), min_size=len(found), max_size=len(found)))
    return fedrec.from_frame(frame)


CHOICES = st.fixed_dictionaries(
    {
        "min_interactions": st.integers(3, 6),
        "duplicates": st.sampled_from(["merge", "keep"]),
        "ties": st.sampled_from(["last", "first", "item_id"]),
        "untimed": st.sampled_from(["random", "file", "item"]),
        "order": st.sampled_from(["time", "random"]),
        "pool": st.sampled_from(["train", "all"]),
    }
)
LEAVE_ONE = st.fixed_dictionaries(
    {"candidates": st.integers(0, 4), "candidate_draw": st.sampled_from(["separate", "disjoint", "shared"])}
)
SHARES = st.fixed_dictionaries(
    {
        "holdout": st.sampled_from(["ratio", "global-time"]),
        "test_ratio": st.sampled_from([0.1, 0.34, 0.5]),
        "validation_ratio": st.sampled_from([0.1, 0.5]),
        "candidates": st.just(0),
    }
)


def named(split: Split, lists) -> Counter:
    data = split.data
    return Counter((data.user_ids[u], data.item_ids[i]) for u, i in zip(lists.owners, lists.values, strict=True))


def kept(data: Interactions, choices: dict) -> Counter:
    """The pairs of the rows that take part, by the words of the protocol and nothing of its code."""
    ratings = np.ones(len(data)) if data.ratings is None else data.ratings
    pairs = [
        (data.user_ids[u], data.item_ids[i])
        for u, i, rating in zip(data.users, data.items, ratings, strict=True)
        if rating > 0
    ]
    if choices["duplicates"] == "merge":
        pairs = list(dict.fromkeys(pairs))
    per_user = Counter(user for user, _ in pairs)
    return Counter(pair for pair in pairs if per_user[pair[0]] >= choices["min_interactions"])


@SOME
@given(data=rows(), choices=CHOICES, holdout=LEAVE_ONE | SHARES, seed=st.integers(0, 3))
def test_every_row_is_in_one_part_and_nothing_held_out_is_trained_on(data, choices, holdout, seed):
    wanted, options = kept(data, choices), choices | holdout
    try:
        split = fedrec.HONEST.with_options(**options).split(data, seed=seed)
    except DataError:  # nothing is left, too few items for candidates, or no time to split by
        needed = options["candidates"] * (1 + (options.get("candidate_draw") == "disjoint"))
        untimed = data.timestamps is None and options.get("holdout") == "global-time"
        assert not wanted or untimed or free_items(wanted) < needed
        return
    train, validation, test = (
        named(split, lists) for lists in (split.training.positives, split.validation.items, split.test.items)
    )
    assert train + validation + test == wanted
    if choices["duplicates"] == "merge":
        assert not train & validation
        assert not train & test
        assert not validation & test
    touched, known = named(split, split.touched), set(split.data.item_ids)
    for user in split.data.user_ids:
        had = {data.item_ids[i] for i in data.items[data.users == data.user_ids.index(user)]}
        assert {item for who, item in touched if who == user} == had & known
    for part in (split.validation, split.test):
        if part.candidates is None:
            assert options["candidates"] == 0
            continue
        for client, drawn in enumerate(part.candidates.tolist()):
            own = {item for user, item in wanted if user == split.data.user_ids[client]}
            assert len(set(drawn)) == options["candidates"]
            assert not own & {split.data.item_ids[i] for i in drawn}


@SOME
@given(data=rows(), choices=CHOICES, seed=st.integers(0, 3), round_=st.integers(0, 5), negatives=st.integers(1, 3))
def test_nobodys_negatives_are_their_own_items(data, choices, seed, round_, negatives):
    wanted = kept(data, choices)
    if not wanted or free_items(wanted) < negatives:
        return
    split = fedrec.HONEST.with_options(candidates=0, **choices).split(data, seed=seed)
    clients = torch.arange(split.data.n_users)
    samples = Sampler(split.training).draw(clients, negatives=negatives, seed=seed, round=round_)
    train = named(split, split.training.positives)
    for client in clients.tolist():
        user, count = split.data.user_ids[client], int(samples.counts[client])
        items = [split.data.item_ids[i] for i in samples.items[client, :count].tolist()]
        labels = samples.labels[client, :count].tolist()
        assert Counter((user, item) for item, label in zip(items, labels, strict=True) if label) == Counter(
            {pair: times for pair, times in train.items() if pair[0] == user}
        )
        own = {item for who, item in (train if choices["pool"] == "train" else wanted) if who == user}
        assert not own & {item for item, label in zip(items, labels, strict=True) if not label}


def free_items(pairs: Counter) -> int:
    """How many items the user with most of them does not have."""
    return len({item for _, item in pairs}) - max(Counter(user for user, _ in set(pairs)).values())
