"""Tables in blocks give what one tensor would."""

import pytest
import torch

from fedrec.parts.tables import inner_products, mix


@pytest.mark.parametrize("cuts", [[6], [1, 5], [2, 3, 1], [1] * 6])
def test_blocks_do_not_change_products_and_means(cuts):
    draw = torch.Generator().manual_seed(0)
    rows, tables, weights = (torch.randn(*size, generator=draw) for size in ((6, 4), (6, 3, 2), (5, 6)))
    found = inner_products(torch.split(rows, cuts))
    torch.testing.assert_close(found, rows @ rows.T)
    mixed = mix(weights, torch.split(tables, cuts))
    torch.testing.assert_close(mixed, torch.einsum("uv,vmd->umd", weights, tables))
