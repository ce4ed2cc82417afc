"""What the compiled twins of local problems share: their inputs, the slopes of a batch, Adam's step, early stopping."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from torch import Tensor

from fedrec.compute.cpu import compiled
from fedrec.sampling.cpu_streams import stream_of
from fedrec.sampling.samples import Samples

KEEP2, EPS = np.float32(0.999), np.float32(1e-8)
NEW1, NEW2 = np.float32(0.1), np.float32(0.001)  # 1 - beta, rounded once: 1 - float32(0.999) is off by 1e-5
ZERO, ONE, TWO = np.float32(0), np.float32(1), np.float32(2)


def arrays(*tensors: Tensor) -> tuple[Any, ...]:
    """NumPy views of contiguous tensors."""
    return tuple(tensor.numpy() for tensor in tensors)


def pack(samples: Samples) -> tuple[tuple[Any, ...], tuple[np.uint64, int]]:
    """A cohort's samples as ``clients, slots, labels, counts, row_counts``, and the stream of its epoch orders."""
    tensors = samples.clients, samples.slots, samples.labels, samples.counts, samples.row_counts
    return arrays(*(tensor.contiguous() for tensor in tensors)), stream_of(samples.seed, samples.round)


@compiled
def end_epoch(losses: Any, c: int, epoch: int, n: int, epoch_sum: float, total: float, tol: float) -> Any:
    """Note client c's loss; returns the sum of all epochs and whether the client is done."""
    losses[c] = epoch_sum / n
    before = total / (n * max(epoch, 1))
    total += epoch_sum
    change = abs(total / (n * (epoch + 1)) - before)
    return total, epoch > 0 and change / abs(before + 1e-5) < tol


@compiled
def batch_slopes(batch: Any, slots: Any, labels: Any, logits: Any, slopes: Any) -> Any:
    """Add the slope of the batch's mean loss in each row's logit to ``slopes``; returns the summed loss."""
    share = ONE / np.float32(len(batch))
    total, product = 0.0, 1.0
    for sample in batch:
        slot = slots[sample]
        sign = ONE - TWO * labels[sample]
        wrong = sign * logits[slot]
        small = np.float32(math.exp(-abs(wrong)))
        slope = (ONE if wrong >= ZERO else small) / (ONE + small)
        slopes[slot] += sign * slope * share
        # The sum of log(1 + e) is the log of one product; a float64 holds a thousand factors up to 2.
        total += np.float64(max(wrong, ZERO))
        product *= 1.0 + np.float64(small)
        if product > 1e300:
            total += math.log(product)
            product = 1.0
    return total + math.log(product)


@compiled
def corrections(lr: float, step: int) -> Any:
    """Rate and scale of Adam's step number ``step``, which carry its bias corrections."""
    return np.float32(lr / (1.0 - 0.9**step)), np.float32(1.0 / math.sqrt(1.0 - 0.999**step))


@compiled
def adam(value: Any, gradient: Any, moment: Any, square: Any, rate: Any, scale: Any) -> Any:
    """Adam's step on one number: the new value and moments."""
    first = moment + (gradient - moment) * NEW1
    second = KEEP2 * square + NEW2 * gradient * gradient
    return value - rate * first / (math.sqrt(second) * scale + EPS), first, second
