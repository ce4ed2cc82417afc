"""Decides whether work runs in the GPU kernels (``gpu_*``), and imports nothing of them.

The kernels are written in Triton, which comes with CUDA builds of torch and is no dependency of its own. Without it, or
with ``FEDREC_KERNELS=off`` in the environment, the readable torch twins run instead.
"""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor


@cache
def installed() -> bool:
    """Whether Triton can be imported and its kernels run on this machine's device."""
    return find_spec("triton") is not None and torch.version.cuda is not None


def enabled(device: torch.device) -> bool:
    """Whether kernels are wanted and there for this device."""
    return device.type == "cuda" and os.environ.get("FEDREC_KERNELS", "on") != "off" and installed()


def usable(*tensors: Tensor) -> bool:
    """Whether kernels can work on these tensors as they lie in memory."""
    return enabled(tensors[0].device) and all(
        tensor.device.type == "cuda" and tensor.dtype == torch.float32 and tensor.is_contiguous() for tensor in tensors
    )
