"""The device and the threads a run asks for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fedrec.errors import ConfigError


def resolve_device(name: str) -> torch.device:
    """The device of that name; ``auto`` is CUDA where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.split(":")[0] not in ("cpu", "cuda"):
        raise ConfigError(f"unknown device '{name}'; use auto, cpu or cuda.")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError("no CUDA device is available here; use the device cpu.")
    return torch.device(name)


@contextmanager
def cpu_threads(number: int | None) -> Iterator[None]:
    """Compute with that many CPU threads for a while; None leaves the number as it is."""
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
