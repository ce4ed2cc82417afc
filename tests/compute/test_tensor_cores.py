"""What is set for products on a GPU is set for a while only."""

from contextlib import suppress

import pytest
import torch

from fedrec.compute.tensor_cores import tf32

NAME = "fp32_precision" if hasattr(torch.backends.cuda.matmul, "fp32_precision") else "allow_tf32"
SET = ["ieee", "tf32"] if NAME == "fp32_precision" else [False, True]


@pytest.mark.parametrize("before", SET)
def test_products_are_tf32_for_a_while(before):
    settings = torch.backends.cuda.matmul
    usual = getattr(settings, NAME)
    try:
        setattr(settings, NAME, before)
        with suppress(ZeroDivisionError), tf32():
            assert getattr(settings, NAME) == SET[1]
            raise ZeroDivisionError
        assert getattr(settings, NAME) == before
    finally:
        setattr(settings, NAME, usual)


def test_products_on_a_cpu_stay_what_they_are():
    left, right = torch.randn(20, 300), torch.randn(300, 20)
    expected = left @ right
    with tf32():
        assert torch.equal(left @ right, expected)
