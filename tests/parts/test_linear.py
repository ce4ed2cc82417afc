"""Linear units: one draw for all, weights and then a bias, and scores of a table with some rows tuned."""

import pytest
import torch

from fedrec.federation.task import Task
from fedrec.local.fit import take_rows
from fedrec.parts.linear import init_unit, tuned_scores, unit_logits
from fedrec.sampling.negatives import Sampler


def task(seed=0):
    return Task(4, 60, torch.ones(4, dtype=torch.int64), seed, torch.device("cpu"))


@pytest.mark.parametrize("dim", [1, 16, 400])
def test_units_start_alike_within_their_bound(dim):
    clients = torch.tensor([3, 0, 2])
    unit = init_unit(task(), clients, dim)
    assert unit.shape == (3, dim + 1)
    assert (unit == unit[0]).all()
    assert unit.abs().max() <= dim**-0.5
    assert dim < 100 or unit.abs().max() > 0.95 * dim**-0.5
    assert torch.equal(init_unit(task(), clients[:1], dim), unit[:1])
    assert torch.equal(init_unit(task(), clients, dim, bias=False), unit[:, :dim])
    assert not (init_unit(task(seed=1), clients, dim) == unit).any()


def test_logits_are_weighted_rows_and_the_bias_where_there_is_one():
    draw = torch.Generator().manual_seed(0)
    unit, rows = torch.randn(3, 5, generator=draw), torch.randn(3, 7, 4, generator=draw)
    for c in range(3):
        torch.testing.assert_close(unit_logits(unit, rows)[c], rows[c] @ unit[c, :4] + unit[c, 4])
        torch.testing.assert_close(unit_logits(unit[:, :4], rows)[c], rows[c] @ unit[c, :4])
    one = rows[0].expand(3, 7, 4)
    torch.testing.assert_close(unit_logits(unit, one), unit_logits(unit, one.clone()))


def test_scores_of_tuned_rows_take_the_place_of_the_tables(small):
    samples = Sampler(small.training).draw(torch.tensor([4, 9, 30]), negatives=2, seed=0, round=0)
    draw = torch.Generator().manual_seed(0)
    unit, table = torch.randn(3, 5, generator=draw), torch.randn(60, 4, generator=draw).expand(3, 60, 4)
    block = take_rows(table, samples) + torch.randn(3, samples.rows.shape[1], 4, generator=draw)
    whole = table.clone()
    for c in range(3):
        rows = samples.rows[c, : samples.row_counts[c]].long()
        whole[c, rows] = block[c, : len(rows)]
    assert int(samples.row_counts.min()) < samples.rows.shape[1], "some have padding"
    torch.testing.assert_close(tuned_scores(unit, table, samples, block), unit_logits(unit, whole))
