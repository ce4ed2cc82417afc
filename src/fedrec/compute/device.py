"""The device and the threads a run asks for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fedrec.errors import ConfigError


def resolve_device(name: str) -> torch.device:
    """The device of that name; ``auto`` is CUDA where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if not re.fullmatch(r"cpu|cuda(:[0-9]{1,4})?", name):
        raise ConfigError(f"unknown device '{name}'; use auto, cpu, cuda, or cuda:1 for the second one.")
    if name == "cpu":
        return torch.device(name)
    if not torch.cuda.is_available():
        raise ConfigError("no CUDA device is available here; use the device cpu.")
    if (torch.device(name).index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"there is no device {name} here; the last one is cuda:{torch.cuda.device_count() - 1}.")
    return torch.device(name)


def check_threads(number: int) -> None:
    """Refuse a number of threads that can only get into each other's way; by the thousand a process cannot even start them."""
    there = os.cpu_count() or 1
    most = max(64, 4 * there)
    if not 1 <= number <= most:
        raise ConfigError(f"{number:,} CPU threads are asked for, but there are {there} processors; use 1 to {most}.")


@contextmanager
def cpu_threads(number: int | None) -> Iterator[None]:
    """Compute with that many CPU threads for a while; None leaves the number as it is."""
    if number is not None:
        check_threads(number)
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
