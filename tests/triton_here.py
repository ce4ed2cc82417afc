"""Whether kernels for GPUs run here: on a GPU where there is one, else in Triton's interpreter where that is installed."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest
import torch

ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")


def interpreter() -> bool:
    """Whether any kernel runs here; some versions of Triton's interpreter and NumPy do not go together."""
    if ON_GPU or find_spec("triton") is None:
        return ON_GPU
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined
    try:
        from triton_probe import add_one

        values = torch.zeros(7)
        add_one[(1,)](values, 7, 4)
    except Exception:
        return False
    return bool((values == 1).all())


needs_triton = pytest.mark.skipif(not interpreter(), reason="needs a GPU, or Triton and an interpreter that works")
needs_gpu = pytest.mark.skipif(not ON_GPU, reason="needs a GPU")
