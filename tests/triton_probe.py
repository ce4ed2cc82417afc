"""A kernel of nobody's: whether Triton runs here at all, which says nothing of the project's own kernels."""

import triton
import triton.language as tl


@triton.jit
def add_one(values, count, size: tl.constexpr):
    for first in range(0, count, size):
        place = first + tl.arange(0, size)
        tl.store(values + place, tl.load(values + place, mask=place < count) + 1, mask=place < count)
