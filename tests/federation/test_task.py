"""Initial values and random choices are functions of seed, client and stream, and of nothing else."""

import pytest
import torch
from scipy import stats

from fedrec.federation.task import Task
from fedrec.sampling.streams import Purpose


def task(seed=0, items=3000, counts=(2, 0, 5, 1)):
    return Task(len(counts), items, torch.tensor(counts), seed, torch.device("cpu"))


def normal(values, std):
    return stats.kstest(values.flatten().double().numpy() / std, stats.norm.cdf).pvalue > 1e-3


@pytest.mark.parametrize("std", [0.1, 3.0])
def test_tables_of_the_server_are_normal_and_of_the_seed_alone(std):
    table = task().item_table(4, std)
    assert table.shape == (3000, 4)
    assert normal(table, std)
    assert torch.equal(table, task(counts=(1,)).item_table(4, std))
    assert not torch.equal(table, task(seed=1).item_table(4, std))
    again = task().normal(3000, 4, std=std, generator=task().generator())
    assert torch.equal(table, again)


def test_values_of_clients_are_normal_and_their_own():
    values = task().client_normal(torch.arange(300), 5, 4, std=0.2)
    assert values.shape == (300, 5, 4)
    assert values.dtype == torch.float32
    assert normal(values, 0.2)
    some = torch.tensor([7, 299, 0])
    assert torch.equal(task().client_normal(some, 5, 4, std=0.2), values[some])
    assert torch.equal(task().client_normal(some, 5, 4, std=0.4), 2 * values[some])
    assert not (task(seed=1).client_normal(some, 5, 4, std=0.2) == values[some]).any()
    assert not (task().client_normal(some, 5, 4, std=0.2, stream=1) == values[some]).any()
    assert torch.equal(task().client_normal(some, 5, 4, std=0.2, stream=0), values[some])


def test_common_values_are_those_of_one_client():
    values = task().client_normal(torch.tensor([3, 1]), 6, std=0.2, common=True)
    assert values.shape == (2, 6)
    assert torch.equal(values[0], values[1])
    assert torch.equal(values[:1], task().client_normal(torch.tensor([0]), 6, std=0.2))


def test_keys_that_are_nobodys_own_differ_by_purpose_round_and_seed():
    keys = {
        int(task(seed).common_key(purpose, round))
        for seed in (0, 1)
        for purpose in (Purpose.INIT, Purpose.OTHER)
        for round in (0, 1)
    }
    assert len(keys) == 8
    assert task().common_key(Purpose.OTHER).shape == (1,)
    assert torch.equal(task().common_key(Purpose.OTHER), task().common_key(Purpose.OTHER, 0))


def test_clients_with_training_items_are_able():
    assert task().able.tolist() == [0, 2, 3]


def test_who_takes_part_is_drawn_anew_every_round():
    drawn = [task(seed).participation_rng(round).integers(1 << 60) for seed in (0, 1) for round in (0, 1)]
    assert len(set(drawn)) == 4
    assert task().participation_rng(1).integers(1 << 60) == drawn[1]
