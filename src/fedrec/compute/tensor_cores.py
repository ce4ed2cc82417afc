"""Products of float32 matrices on a GPU's tensor cores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def tf32() -> Iterator[None]:
    """Let products on a GPU read their factors as TF32, which keeps 10 of the 23 bits; sums stay float32.

    What was set before holds again afterwards. Nothing changes on a CPU.
    """
    settings = torch.backends.cuda.matmul
    # Before 2.9 torch has only the second name, and since then it warns of it.
    name, on = ("fp32_precision", "tf32") if hasattr(settings, "fp32_precision") else ("allow_tf32", True)
    before = getattr(settings, name)
    setattr(settings, name, on)
    try:
        yield
    finally:
        setattr(settings, name, before)
