"""Steps of many small operations, recorded once on a GPU and replayed as one CUDA graph.

On a GPU a small operation takes a few microseconds, and starting it takes as long on the CPU. A replayed graph starts all of
its operations at once. Elsewhere, and with ``FEDREC_GRAPHS=off`` in the environment, a recorded function is simply called.

What is recorded must not wait for the device (no ``.item()``, no boolean masks, nothing from the CPU) and must depend on
nothing but its inputs and tensors that stay where they are, which it may change in place.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Hashable, Sequence
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

Function = Callable[..., Sequence[Tensor]]
Replay = Callable[[], Sequence[Tensor]]
Recorder = Callable[[Function, Sequence[Tensor]], Replay]
"""Records a function of inputs that stay where they are; what it gives computes the same again from what they hold then."""

PLAIN_CALLS = 2
"""Calls with inputs of the same shapes that run plainly first: libraries set themselves up, and a rare shape is not worth it."""
MOST = 48
"""Shapes that are recorded at most; each keeps its inputs and what it computes in memory."""


class GraphRecorder:
    """Records CUDA graphs that share one pool of memory; only what a replay returns lives beyond it."""

    def __init__(self, device: torch.device) -> None:
        """A stream of its own, because the default one cannot be recorded."""
        self.device, self.stream = device, torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.pool = torch.cuda.graph_pool_handle()

    def plainly(self, function: Function, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """Call the function as it will be recorded: on the same stream, so that libraries set themselves up for it."""
        now = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(now)
        with torch.cuda.stream(self.stream):
            outputs = function(*inputs)
        now.wait_stream(self.stream)
        return outputs

    def __call__(self, function: Function, inputs: Sequence[Tensor]) -> Replay:
        """Record one call; nothing is computed yet."""
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(self.device)
        with torch.cuda.stream(self.stream):  # left whatever happens inside
            graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
            try:
                outputs = function(*inputs)
            finally:
                graph.capture_end()

        def replay() -> Sequence[Tensor]:
            graph.replay()
            return outputs

        return replay


class Recorded:
    """One function, called with new inputs again and again; recordings differ by the shapes of the inputs."""

    def __init__(self, held: Sequence[Tensor] = (), recorder: Recorder | None = None) -> None:
        """``held`` are tensors the function changes in place, which must outlive its recordings; ``recorder`` is for tests."""
        self.held, self.recorder = held, recorder
        self.problem = ""
        """Why nothing is recorded any more: what came of the recording that failed."""
        self._calls: dict[Hashable, int] = {}
        self._made: dict[Hashable, tuple[list[Tensor], Replay]] = {}
        self._lock = Lock()  # inputs, replay and outputs of two threads must not mix

    def __call__(self, function: Function, *inputs: Tensor, ragged: Sequence[int] = ()) -> Sequence[Tensor]:
        """What ``function`` (the same at every call) returns for these inputs, as tensors of their own.

        ``ragged`` says of each input how many of its first dimensions differ from call to call. Where something is
        recorded these are padded with zeros to one of a few lengths, and outputs are as long as that makes them.
        """
        if self.problem or not (self.recorder or _wanted(inputs)):
            return function(*inputs)
        with self._lock:
            return self._call(function, inputs, ragged or [0] * len(inputs))

    def _call(self, function: Function, inputs: Sequence[Tensor], ragged: Sequence[int]) -> Sequence[Tensor]:
        recorder = self.recorder = self.recorder or GraphRecorder(inputs[0].device)
        lengths = [_padded(tensor, dimensions) for tensor, dimensions in zip(inputs, ragged, strict=True)]
        shapes = tuple((tensor.dtype, *length) for tensor, length in zip(inputs, lengths, strict=True))
        if shapes not in self._made:
            static = [tensor.new_zeros(length) for tensor, length in zip(inputs, lengths, strict=True)]
            _fill(static, inputs)
            calls = self._calls[shapes] = self._calls.get(shapes, 0) + 1
            if calls <= PLAIN_CALLS or len(self._made) >= MOST or not self._record(recorder, shapes, function, static):
                return recorder.plainly(function, static) if isinstance(recorder, GraphRecorder) else function(*static)
        static, replay = self._made[shapes]
        _fill(static, inputs)
        return tuple(output.clone() for output in replay())

    def _record(self, recorder: Recorder, shapes: Hashable, function: Function, static: list[Tensor]) -> bool:
        try:
            self._made[shapes] = static, recorder(function, static)
        except RuntimeError as error:  # what cannot be recorded is still right when it is called
            self.problem = str(error.__context__ or error)  # ending a failed recording fails, too
            warnings.warn(
                f"steps are not recorded on the GPU from here on, which is slower: {self.problem}", stacklevel=2
            )
        return not self.problem


def _padded(tensor: Tensor, ragged: int) -> list[int]:
    return [*map(roomy, tensor.shape[:ragged]), *tensor.shape[ragged:]]


def roomy(length: int) -> int:
    """The next of a few lengths, four per doubling, that has room for ``length``."""
    step = max(8, 1 << max(0, length.bit_length() - 3))
    return -(-length // step) * step


def _fill(static: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
    for mine, given in zip(static, inputs, strict=True):
        if mine.shape == given.shape:
            mine.copy_(given)
        else:
            mine.zero_()[tuple(map(slice, given.shape))].copy_(given)


def _wanted(inputs: Sequence[Tensor]) -> bool:
    return bool(inputs) and inputs[0].device.type == "cuda" and os.environ.get("FEDREC_GRAPHS", "on") != "off"


Key = tuple[Hashable, tuple[int, ...]]
_kept: WeakKeyDictionary[Any, dict[Key, Recorded]] = WeakKeyDictionary()


def kept(owner: object, *what: Hashable, held: Sequence[Tensor] = ()) -> Recorded:
    """The recordings of ``what`` with these ``held`` tensors, which live as long as their ``owner``.

    Tensors are told apart by where they lie: with others, such as those of a state that was loaded, recording begins anew.
    """
    mine = _kept.setdefault(owner, {})
    key: Key = (what, tuple(tensor.data_ptr() for tensor in held))
    if key not in mine:
        for old in [other for other in mine if other[0] == what]:
            del mine[old]
        mine[key] = Recorded(held)
    return mine[key]
