"""A split: the view a trainer may see, and the held-out items only an evaluator sees."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedrec.data.filtered import Filtered
from fedrec.data.filters import filter_and_tell
from fedrec.data.interactions import Ids, Interactions
from fedrec.data.training import Ragged, TrainingView
from fedrec.protocol.candidates import draw_candidates
from fedrec.protocol.choices import Choices
from fedrec.protocol.history import histories
from fedrec.protocol.holdout import TEST, TRAIN, VALIDATION, canonical, parts


@dataclass(frozen=True, eq=False)
class HeldOut:
    """One held-out part: its items per client, and the candidates they are ranked against (None: full ranking only)."""

    items: Ragged
    candidates: NDArray[np.int32] | None


@dataclass(frozen=True, eq=False)
class Split:
    """Training view, validation and test of one data set under one protocol and seed.

    Hand ``training`` to a trainer and the split to an evaluator; nothing leads from the former to the latter.
    """

    protocol: Choices
    seed: int
    data: Interactions  # after the protocol's filter
    training: TrainingView
    validation: HeldOut
    test: HeldOut
    touched: Ragged
    """Everything each user has to do with in the data, whatever the filter made of it: nothing of it is new to them."""
    hash: str
    """sha256 of the protocol, the seed and every part, by original ids: equal on every machine."""
    filtered: Filtered | None = None
    """What the protocol's filter kept of the data and what it dropped, and why."""

    @property
    def order_hash(self) -> str:
        """sha256 of every client's training items in the order of time, by original ids; ``hash`` knows no order within parts."""
        history, (user_rank, item_rank) = (
            self.training.history,
            (canonical(self.data.user_ids), canonical(self.data.item_ids)),
        )
        if history is None:
            return ""
        lists = Ragged.build(user_rank[history.owners], item_rank[history.values], len(history))
        return hashlib.sha256(lists.offsets.astype("<i8").tobytes() + lists.values.astype("<i8").tobytes()).hexdigest()

    @property
    def held_out_in_training(self) -> int:
        """Clients whose test item is also among their training rows (possible only with duplicates='keep')."""
        both = np.intersect1d(
            _pairs(self.training.positives, self.data.n_items), _pairs(self.test.items, self.data.n_items)
        )
        return len(np.unique(both // self.data.n_items))

    def __repr__(self) -> str:
        notes = ", leaks" if self.protocol.leaks else ""
        if self.filtered is not None and self.filtered.dropped.users:
            notes += f", {self.filtered.kept.users:,} of {self.filtered.given.users:,} users"
        return (
            f"Split({self.data.name!r}, protocol={self.protocol.name!r}, seed={self.seed}{notes}, "
            f"hash={self.hash[:12]})"
        )


Progress = Callable[[str, int, int], None]
"""Told what a split is doing, and how much of how much is done."""


def _silent(what: str, done: int, total: int) -> None:
    pass


def make_split(
    interactions: Interactions,
    protocol: Choices,
    seed: int = 0,
    progress: Progress | None = None,
    *,
    catalogue: Ids | None = None,
) -> Split:
    """Filter ``interactions`` and hold out what ``protocol`` says.

    Items are numbered in order of first appearance, or as in a ``catalogue`` that holds them all and perhaps more.
    """
    tell = progress or _silent
    tell("filtering rows", 0, 1)
    data, filtered = filter_and_tell(
        interactions,
        min_per_user=protocol.min_interactions,
        duplicates=protocol.duplicates,
        positive_only=True,
    )
    if catalogue is not None:
        numbers = codes(data.item_ids, catalogue).astype(np.int32)
        data = replace(data, items=numbers[data.items], item_ids=catalogue)
    tell("holding out rows", 0, 1)
    order, part = parts(data, protocol, seed)
    return assemble(data, order, part, protocol, seed, tell, touched_items(interactions, data), filtered)


def touched_items(whole: Interactions, data: Interactions) -> Ragged:
    """All items of ``data`` that its users have in the ``whole`` from which it was filtered, ascending and distinct."""
    users, items = codes(whole.user_ids, data.user_ids)[whole.users], codes(whole.item_ids, data.item_ids)[whole.items]
    known = (users >= 0) & (items >= 0)
    return _distinct(users[known] * data.n_items + items[known], data.n_items, data.n_users)


def codes(ids: Ids, known: Ids) -> NDArray[np.int64]:
    """Code of every id among the known ones, -1 where it is none of them."""
    index = dict(zip(known, range(len(known)), strict=True))
    return np.array([index.get(key, -1) for key in ids], np.int64)


def assemble(
    data: Interactions,
    order: NDArray[np.int64],
    part: NDArray[np.int8],
    protocol: Choices,
    seed: int,
    tell: Progress = _silent,
    touched: Ragged | None = None,
    filtered: Filtered | None = None,
) -> Split:
    """The split of filtered ``data`` whose rows, taken in ``order``, belong to ``part``.

    ``touched`` is needed where the users have to do with more items than these rows say.
    """
    users, items = data.users[order], data.items[order]

    def rows(*wanted: int) -> Ragged:
        chosen = np.isin(part, wanted)
        return Ragged.build(users[chosen], items[chosen], data.n_users)

    train, validation, test = rows(TRAIN), rows(VALIDATION), rows(TEST)
    seen = _distinct(users.astype(np.int64) * data.n_items + items, data.n_items, data.n_users)
    ranks = canonical(data.user_ids), canonical(data.item_ids)
    history = histories(data, order[part == TRAIN], ranks, seed, repeated=protocol.duplicates == "keep")
    view = training_view(data, train, seen, protocol, history)
    drawn: list[NDArray[np.int32] | None] = [None, None]
    if protocol.candidates:
        rule, taken = protocol.candidate_draw, seen
        draw = partial(
            draw_candidates,
            n_items=data.n_items,
            count=protocol.candidates,
            seed=seed,
            user_rank=ranks[0],
            item_rank=ranks[1],
            progress=partial(tell, "drawing candidates"),
        )
        first = draw(seen, stream=2)
        if rule == "disjoint":
            owners = np.repeat(np.arange(data.n_users), protocol.candidates)
            both = np.concatenate([seen.owners, owners]), np.concatenate([seen.values, first.ravel()])
            taken = Ragged.build(*both, data.n_users)
        drawn = [first, first if rule == "shared" else draw(taken, stream=3)]
    tell("hashing the split", 0, 1)
    digest = split_hash(data, protocol, seed, ranks, (train, validation, test), drawn)
    tell("hashing the split", 1, 1)
    held = HeldOut(validation, drawn[0]), HeldOut(test, drawn[1])
    return Split(protocol, seed, data, view, *held, seen if touched is None else touched, digest, filtered)


def training_view(
    data: Interactions, train: Ragged, everything: Ragged, protocol: Choices, history: Ragged | None
) -> TrainingView:
    """What a trainer may see: training items, and where the protocol's pool leaks them the items of all parts."""
    pool = everything if protocol.pool == "all" else train
    excluded = _distinct(_pairs(pool, data.n_items), data.n_items, len(train))
    return TrainingView(data.n_users, data.n_items, train, excluded, history)


def _pairs(lists: Ragged, n_items: int) -> NDArray[np.int64]:
    return lists.owners * n_items + lists.values


def _distinct(pairs: NDArray[np.int64], n_items: int, n: int) -> Ragged:
    pairs = np.sort(pairs)  # np.unique hashes, which takes many times as long
    pairs = pairs[np.append(True, pairs[1:] != pairs[:-1])] if len(pairs) else pairs
    return Ragged.build(pairs // n_items, pairs % n_items, n)


def split_hash(
    data: Interactions,
    protocol: Choices,
    seed: int,
    ranks: tuple[NDArray[np.int64], NDArray[np.int64]],
    held: tuple[Ragged, ...],
    drawn: list[NDArray[np.int32] | None],
) -> str:
    """sha256 of everything a result depends on, by original ids; methods that learn from order depend on ``order_hash``, too."""
    # A choice that was added later and changes no part counts only where it is made.
    left_out = {"name"} | ({"history_at_test"} if protocol.history_at_test == "train" else set())
    digest = hashlib.sha256(f"{protocol.model_dump_json(exclude=left_out)}|{seed}".encode())
    for ids in (data.user_ids, data.item_ids):
        digest.update("\n".join(sorted(map(str, ids))).encode())
    user_rank, item_rank = ranks
    for lists in held:
        pairs = user_rank[lists.owners] * data.n_items + item_rank[lists.values]
        digest.update(np.sort(pairs).astype("<i8").tobytes())
    for candidates in drawn:
        if candidates is not None:
            by_user = np.empty(candidates.shape, np.int64)
            by_user[user_rank] = np.sort(item_rank[candidates], axis=1)
            digest.update(by_user.astype("<i8").tobytes())
    return digest.hexdigest()
