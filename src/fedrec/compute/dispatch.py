"""Decides whether work runs compiled, on the CPU (numba) or on a GPU (Triton), and imports nothing of either.

Whatever is compiled has a readable torch reference that computes the same. The reference runs on other devices and
types, where Triton is missing (it comes with CUDA builds of torch), and everywhere with ``FEDREC_KERNELS=off`` in the
environment.
"""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec
from typing import Literal

import torch
from torch import Tensor

Kind = Literal["cpu", "gpu"]


@cache
def triton_installed() -> bool:
    """Whether Triton can be imported and its kernels run on this machine's device."""
    return find_spec("triton") is not None and torch.version.cuda is not None


def compiled_on(device: torch.device) -> Kind | None:
    """The compiled code that is wanted and there for a device; None asks for the reference."""
    if os.environ.get("FEDREC_KERNELS", "on") == "off":
        return None
    if device.type == "cpu":
        return "cpu"
    return "gpu" if device.type == "cuda" and triton_installed() else None


def compiled_for(*tensors: Tensor) -> Kind | None:
    """The compiled code that can work on these tensors: float32, all on one device that has it."""
    devices = {tensor.device for tensor in tensors}
    if len(devices) != 1 or any(tensor.dtype != torch.float32 for tensor in tensors):
        return None
    return compiled_on(devices.pop())
