"""Processes under PyTorch's launcher: ``torchrun`` before ``-m fedrec train``.

Each process owns a share of the clients (``federation/shares.py``). Tensors on a GPU travel by NCCL, all others by gloo. What
one process cannot finish ends all of them: those that wait for it are told by the system that it is gone.
"""

from __future__ import annotations

import hashlib
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from fedrec.errors import FedrecError

PATIENCE = timedelta(minutes=30)
"""How long a process waits for the others in one step; they may differ by a checkpoint that is written."""
_ENVIRONMENT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


_runs = count()


class LostError(FedrecError):
    """Another process of the run has ended, or the launcher ends them all."""


def processes() -> int:
    """How many processes the launcher has started; 1 without a launcher."""
    if not all(name in os.environ for name in _ENVIRONMENT):
        return 1
    return int(os.environ["WORLD_SIZE"]) if os.environ["WORLD_SIZE"].isdigit() else 1


def is_first() -> bool:
    """Whether this process speaks for all."""
    return processes() == 1 or os.environ["RANK"] == "0"


def says_it() -> bool:
    """Whether this process is the one to say why a run ends: of all processes only the first to know does."""
    if processes() == 1:
        return True
    try:
        return bool(_store().add(f"ends/{_run()}", 1) == 1)
    except Exception:  # the launcher is gone, and with it the place where processes meet
        return True


def _run() -> str:
    """One name for all processes of this attempt of the launcher."""
    names = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", *_ENVIRONMENT[2:])
    return hashlib.sha256("|".join(os.environ.get(name, "") for name in names).encode()).hexdigest()[:16]


@cache
def _store() -> Any:
    return next(iter(rendezvous("env://", timeout=PATIENCE)))[0]


def joined(device: str) -> TorchPeers | None:
    """The processes of the launcher, as this one sees them; None without a launcher."""
    if processes() == 1:
        return None
    if dist.is_initialized():
        return TorchPeers(device, own_group=False)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and device != "cpu" else "gloo"
    if "nccl" in backend:
        torch.cuda.set_device(_local_rank())
    meeting = PrefixStore(f"{_run()}/{next(_runs)}", _store())
    rank = int(os.environ["RANK"])
    with _explained():
        dist.init_process_group(backend, store=meeting, rank=rank, world_size=processes(), timeout=PATIENCE)
    return TorchPeers(device)


def _local_rank() -> int:
    return int(os.environ.get("LOCAL_RANK", "0"))


@contextmanager
def _explained() -> Iterator[None]:
    """What torch says of a peer that is gone, as a sentence."""
    try:
        yield
    except RuntimeError as error:
        if "memory" in str(error):
            raise
        raise LostError("another process of this run has ended, so this one ends, too") from error


class TorchPeers:
    """Processes that share the clients of a simulation."""

    def __init__(self, device: str, *, own_group: bool = True) -> None:
        """They have found each other; a group of the caller's making is left as it is at the end."""
        self._own_group = own_group
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        several = device in ("auto", "cuda") and torch.cuda.is_available()
        self.device = f"cuda:{_local_rank()}" if several else device
        """The device of this process."""

    def add(self, values: Tensor) -> None:
        """All-reduce."""
        with _explained():
            dist.all_reduce(values)

    def gather(self, values: Tensor) -> list[Tensor]:
        """All-gather of the bytes, padded to the longest."""
        lengths, padded = self._packed(values)
        found = [torch.empty_like(padded) for _ in lengths]
        with _explained():
            dist.all_gather(found, padded)
        return [self._unpacked(raw, length, values) for raw, length in zip(found, lengths, strict=True)]

    def collect(self, values: Tensor) -> list[Tensor]:
        """Gather of the bytes, padded to the longest."""
        lengths, padded = self._packed(values)
        found = [torch.empty_like(padded) for _ in lengths] if self.rank == 0 else None
        with _explained():
            dist.gather(padded, found, dst=0)
        return [self._unpacked(raw, length, values) for raw, length in zip(found or [], lengths, strict=False)]

    def _packed(self, values: Tensor) -> tuple[list[int], Tensor]:
        own = values.detach().cpu().contiguous().view(-1).view(torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        with _explained():
            dist.all_gather(sizes, torch.tensor([own.numel()]))
        lengths = [int(size) for size in sizes]
        padded = torch.zeros(max(1, *lengths), dtype=torch.uint8) if own.numel() < max(1, *lengths) else own
        if padded is not own:
            padded[: own.numel()] = own
        return lengths, padded

    @staticmethod
    def _unpacked(raw: Tensor, length: int, like: Tensor) -> Tensor:
        found = raw[:length].view(like.dtype).view(-1, *like.shape[1:])
        return found.to(like.device)

    @contextmanager
    def ending(self, folder: Path | None) -> Iterator[None]:
        """While a run lasts: the launcher's wish to end it, or a peer that is gone, becomes a sentence that says how to go on."""
        try:
            with _asked_to_end():
                yield
        except LostError as error:
            how = (
                f"see what it said and resume the run in {folder}"
                if folder
                else "train with a run folder (out) to resume"
            )
            raise LostError(f"{error}; {how}.") from error
        if self._own_group:
            dist.destroy_process_group()


@contextmanager
def _asked_to_end() -> Iterator[None]:
    """The launcher ends processes by a signal when one of them has failed."""

    def end(number: int, frame: FrameType | None) -> None:
        raise LostError("the launcher ends this run, as when another process of it has ended or failed")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except LostError:
        before = signal.SIG_IGN  # the launcher's signal may come now; the reason is still to be said
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
