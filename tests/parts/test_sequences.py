"""Sequences in blocks of like length, and whose turn it is."""

import pytest
import torch

from fedrec.federation.task import Task
from fedrec.parts.sequences import alike, block, blocks, drawn, newest, shuffled


def task(counts, seed=0):
    return Task(len(counts), 9, torch.tensor(counts), seed, torch.device("cpu"))


HISTORY = torch.tensor([[5, 6, 7, 8], [1, 2, -1, -1], [-1, -1, -1, -1], [4, 3, 2, -1]])


def test_the_newest_items_are_the_last_ones_oldest_first():
    found, lengths = newest(HISTORY, 3)
    assert found.tolist() == [[6, 7, 8], [1, 2, -1], [-1, -1, -1], [4, 3, 2]]
    assert lengths.tolist() == [3, 2, 0, 3]
    found, lengths = newest(HISTORY, 1)
    assert found.tolist() == [[8], [2], [-1], [2]]
    assert lengths.tolist() == [1, 1, 0, 1]


def test_without_time_every_step_has_an_order_of_its_own_that_belongs_to_the_client():
    clients, everybody = torch.tensor([3, 1]), torch.arange(40).expand(2, 40)
    longer = torch.cat([everybody, torch.full((2, 3), -1)], 1)
    first, second = (shuffled(everybody, task([40] * 5), clients, step) for step in (0, 1))
    for found in (first, second):
        assert torch.equal(found.sort(1).values, everybody)
        assert not torch.equal(found[0], found[1])
        after = (found[:, 1:] > found[:, :-1]).float().mean()
        assert 0.3 < after < 0.7  # up as often as down
    assert not torch.equal(first, second)
    assert torch.equal(shuffled(longer, task([40] * 5), clients, 0), torch.cat([first, longer[:, 40:]], 1))
    assert torch.equal(shuffled(everybody[:1], task([40] * 5), clients[1:], 0), first[1:])
    assert torch.equal(shuffled(everybody.flip(1), task([40] * 5), clients, 0), first)
    assert not torch.equal(shuffled(everybody, task([40] * 5, seed=1), clients, 0), first)


def test_short_histories_are_as_wide_as_the_longest_of_them():
    found, lengths = newest(HISTORY[1:], 10)
    assert found.tolist() == [[1, 2, -1], [-1, -1, -1], [4, 3, 2]]
    assert lengths.tolist() == [2, 0, 3]
    assert newest(HISTORY[:0], 10)[0].shape == (0, 0)
    assert newest(HISTORY[2:3], 10)[0].shape == (1, 0)


def test_blocks_of_like_length_hold_so_many_places_and_no_empty_sequence():
    """Longest first: in 8 places two of length 4, two of length 3, then those of length 2 with what is shorter."""
    lengths = torch.tensor([2, 4, 0, 1, 4, 2, 3, 0, 2])
    found = [(part.tolist(), width) for part, width in alike(lengths, 8)]
    assert found == [([1, 4], 4), ([6, 0], 3), ([5, 8, 3], 2)]


@pytest.mark.parametrize("places", [1, 5, 64, 1000])
def test_every_sequence_comes_once_in_a_block_that_is_wide_enough(places):
    lengths = torch.randint(0, 30, (200,), generator=torch.Generator().manual_seed(0))
    seen, widths = [], []
    for part, width in alike(lengths, places):
        assert int(lengths[part].max()) == width
        assert len(part) * width <= max(places, width)
        seen += part.tolist()
        widths.append(width)
    assert sorted(seen) == (lengths > 0).nonzero()[:, 0].tolist()
    assert widths == sorted(widths, reverse=True)


def test_nothing_and_nothing_but_empty_sequences_give_no_block():
    assert list(alike(torch.zeros(0, dtype=torch.int64), 8)) == []
    assert list(alike(torch.zeros(5, dtype=torch.int64), 8)) == []


@pytest.mark.parametrize(("size", "number"), [(1, 7), (2, 4), (3, 3), (6, 2), (7, 1), (100, 1)])
def test_blocks_are_as_many_as_it_takes(size, number):
    """Seven of nine clients have training items."""
    assert blocks(task([1, 0, 2, 3, 1, 0, 5, 1, 1]), size) == number


def test_somebody_has_a_block_even_where_nobody_has_items():
    assert blocks(task([0, 0]), 5) == 1
    assert len(block(task([0, 0]), 5, 3)) == 0


@pytest.mark.parametrize("size", [2, 3, 7, 30])
def test_every_epoch_visits_everybody_once_in_blocks_of_like_size(size):
    counts = [client % 4 for client in range(40)]  # thirty have items
    about = task(counts)
    number = blocks(about, size)
    orders = []
    for epoch in range(3):
        parts = [block(about, size, epoch * number + step) for step in range(number)]
        assert max(map(len, parts)) <= size
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
        assert all(part.tolist() == sorted(part.tolist()) for part in parts)
        assert sorted(torch.cat(parts).tolist()) == about.able.tolist()
        orders.append([part.tolist() for part in parts])
    if 1 < number < 30:
        assert orders[0] != orders[1] != orders[2]
        assert [block(task(counts), size, step).tolist() for step in range(number)] == orders[0]
        assert block(task(counts, seed=1), size, 0).tolist() != orders[0][0]


def test_each_client_takes_part_by_itself_with_the_given_probability():
    about = task([1] * 3999 + [0])
    first, second = drawn(about, 0.25, 0), drawn(about, 0.25, 1)
    for found in (first, second):
        assert abs(len(found) - 1000) < 4 * (4000 * 0.25 * 0.75) ** 0.5
        assert found.tolist() == sorted(set(found.tolist()))
    both = len(set(first.tolist()) & set(second.tolist()))
    assert abs(both - 250) < 4 * (4000 / 16 * 15 / 16) ** 0.5, "steps are independent"
    assert torch.equal(drawn(about, 0.25, 0), first)
    assert set(drawn(about, 0.1, 0).tolist()) < set(first.tolist())
    assert drawn(about, 1.0, 0).tolist() == list(range(3999)), "who has nothing to learn from is never drawn"
    assert len(drawn(about, 0.0, 0)) == 0
