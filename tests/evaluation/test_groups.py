import numpy as np
import pytest
import torch

from fedrec.errors import ConfigError, DataError
from fedrec.evaluation.groups import GroupMean, by_group, coverage, gini, sparsity_groups


def test_quintiles_by_hand():
    counts = [50, 3, 40, 3, 30, 20, 10, 60, 70, 9]
    assert sparsity_groups(counts).tolist() == [4, 1, 4, 1, 3, 3, 2, 5, 5, 2]


def test_equal_counts_are_split_by_client_number():
    assert sparsity_groups([7] * 6, groups=3).tolist() == [1, 1, 2, 2, 3, 3]
    assert sparsity_groups([8, 7] * 50, groups=4).tolist() == [3, 1] * 25 + [4, 2] * 25
    assert sparsity_groups([5, 6, 7], groups=1).tolist() == [1, 1, 1]


@pytest.mark.parametrize("clients", [5, 7, 943, 6040])
def test_group_sizes_differ_by_at_most_one(clients):
    counts = np.random.default_rng(0).integers(5, 20, clients)
    groups = sparsity_groups(counts)
    sizes = np.bincount(groups, minlength=6)[1:]
    assert sizes.sum() == clients
    assert sizes.max() - sizes.min() <= 1
    for sparse, dense in [(1, 2), (2, 3), (3, 4), (4, 5)]:
        assert counts[groups == sparse].max() <= counts[groups == dense].min()


def test_few_or_no_clients():
    assert len(set(sparsity_groups([4, 2, 9]).tolist())) == 3
    assert sparsity_groups([]).tolist() == []
    with pytest.raises(ConfigError, match="at least 1"):
        sparsity_groups([1, 2], groups=0)


def test_means_by_group():
    got = by_group([1.0, 0.0, 0.5, np.nan, 0.25, np.nan], [1, 1, 2, 2, 2, 3])
    assert got == [GroupMean(1, 2, 0.5), GroupMean(2, 2, 0.375)]
    assert by_group(torch.tensor([0.5]), [4]) == [GroupMean(4, 1, 0.5)]
    with pytest.raises(DataError, match="differ in shape"):
        by_group([1.0, 2.0], [1])


def test_coverage_by_hand():
    assert coverage(torch.tensor([[0, 1], [1, 2], [2, -1]]), 10) == pytest.approx(0.3)
    assert coverage(torch.tensor([[-1, -1]]), 4) == 0


def test_gini_by_hand():
    assert gini(torch.tensor([[0, 1], [2, 3]]), 4) == pytest.approx(0)
    assert gini(torch.full((50, 1), 6), 10) == pytest.approx(0.9)  # one of ten items takes all: 1 - 1/10
    # Counts 0, 1, 3: mean absolute difference over all ordered pairs (12 / 9), over twice the mean (8 / 3).
    assert gini(torch.tensor([[1], [2], [2], [2]]), 3) == pytest.approx(0.5)
    assert gini(torch.tensor([[-1]]), 3) == 0


def test_items_outside_the_data_set_are_refused():
    for measure in (coverage, gini):
        with pytest.raises(DataError, match="beyond the 3"):
            measure(torch.tensor([[3]]), 3)
        with pytest.raises(DataError, match="beyond the 0"):
            measure(torch.tensor([[-1]]), 0)


def test_a_catalogue_of_one_item():
    assert coverage(torch.tensor([[0], [0]]), 1) == 1
    assert gini(torch.tensor([[0], [0]]), 1) == 0
