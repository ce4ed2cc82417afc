"""Compiled CPU kernels. Each has a readable torch reference, and a test that both agree.

Kernels release the GIL and work on a range of clients; ``for_clients`` spreads the ranges over threads. Plain
threads are used rather than numba's own, whose OpenMP layer aborts a process that forks and whose fallback
aborts when two threads call kernels at the same time. Nothing a kernel computes depends on how clients are
spread.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeVar

import numba
import numpy as np
import torch
from numpy.typing import NDArray

from fedrec.compute.kernel_cache import cached_beside_its_like

Function = TypeVar("Function", bound=Callable[..., Any])

RANGES_PER_THREAD = 8  # more than one, so that a thread that is done early takes work from the others
WORTH_A_THREAD = 2e6  # nanoseconds of work; with less, starting a thread costs more than it saves


def compiled(function: Function) -> Function:
    """Compile with numba and keep the machine code on disk, where a place for it can be found."""
    # Sums may be reordered, which vectorising them needs; infinities and NaNs keep their meaning.
    fast = {"contract", "reassoc", "nsz", "arcp"}
    with cached_beside_its_like() as place:
        kernel: Function = numba.njit(cache=place, nogil=True, error_model="numpy", fastmath=fast)(function)
    return kernel


def for_clients(work: Callable[[int, int], None], costs: NDArray[Any], *, unit: float = math.inf) -> None:
    """Call ``work(first, last)`` on ranges of clients, on up to ``torch.get_num_threads()`` threads.

    Ranges are cut so that their ``costs`` sum to about the same. ``unit``, the rough number of nanoseconds
    per unit of cost, keeps little work on few threads.
    """
    done = np.cumsum(costs, dtype=np.float64)
    threads = min(torch.get_num_threads(), len(costs))
    nanoseconds = float(done[-1]) * unit if threads > 1 else 0.0
    if nanoseconds < threads * WORTH_A_THREAD:
        threads = 1 + int(nanoseconds / WORTH_A_THREAD)
    if threads <= 1:
        work(0, len(costs))
        return
    ranges = RANGES_PER_THREAD * threads
    cuts = np.searchsorted(done, done[-1] * np.arange(1, ranges) / ranges)
    bounds = np.unique(np.concatenate([[0], cuts, [len(costs)]])).tolist()
    with ThreadPoolExecutor(threads) as pool:
        for finished in [pool.submit(work, *pair) for pair in pairwise(bounds)]:
            finished.result()
