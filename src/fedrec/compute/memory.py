"""Memory: what is free, and the most that was used."""

from __future__ import annotations

import os
import resource
import sys

import torch


def available(device: torch.device) -> int:
    """Bytes free on the device (for the CPU: what the system can hand out without swapping)."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        with open("/proc/meminfo") as file:
            fields = dict(line.split(":", 1) for line in file)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def peak_mb(device: torch.device) -> float:
    """Largest memory use so far: of the process, or of the device."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e6
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
