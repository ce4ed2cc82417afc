"""What a client scores with, as a perceptron on the columns of an item row: made from its parameters, and back to their gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from fedrec.compute.cpu import compiled
from fedrec.local.cpu.shared import ZERO
from fedrec.local.fit import Params
from fedrec.local.pair_network import PairNetwork

LINEAR, NETWORK = 0, 1
"""Kinds of scorer: a linear unit with or without bias, and a network on a user vector beside the row."""


@compiled
def read_scorer(kind: int, own: Any, network: Any, widths: Any, scorer: Any, product: Any) -> None:
    """Fill ``scorer``, laid out as any perceptron, and the weights ``product`` of the row's first columns."""
    d, first, a = widths[0], widths[1], len(product)
    if kind == LINEAR:
        scorer[d] = ZERO
        for k in range(len(own)):
            scorer[k] = own[k]
        return
    for j in range(first):  # W concat(p, q) = W_p p + W_q q: the user's part joins the biases
        bias = network[2 * d * first + j]
        for k in range(d):
            bias += network[2 * d * j + k] * own[a + k]
            scorer[d * j + k] = network[2 * d * j + d + k]
        scorer[d * first + j] = bias
    behind, here = first * (2 * d + 1), first * (d + 1)
    hidden = len(scorer) - widths[-2] - 1 - here  # of the layers between
    for k in range(hidden):
        scorer[here + k] = network[behind + k]
    for k in range(a):  # h . (p (.) q) = (h (.) p) . q
        product[k] = network[behind + hidden + k] * own[k]
    for k in range(widths[-2] + 1):
        scorer[here + hidden + k] = network[behind + hidden + a + k]


@compiled
def spread(
    own: Any, network: Any, widths: Any, scorer_grad: Any, product_grad: Any, own_grad: Any, network_grad: Any
) -> None:
    """Gradients of a user vector and its network from those of the scorer they make; they must be 0 before."""
    d, first, a = widths[0], widths[1], len(product_grad)
    for j in range(first):
        slope = scorer_grad[d * first + j]
        network_grad[2 * d * first + j] = slope
        for k in range(d):
            network_grad[2 * d * j + k] = slope * own[a + k]
            network_grad[2 * d * j + d + k] = scorer_grad[d * j + k]
            own_grad[a + k] += slope * network[2 * d * j + k]
    behind, here = first * (2 * d + 1), first * (d + 1)
    hidden = len(scorer_grad) - widths[-2] - 1 - here
    for k in range(hidden):
        network_grad[behind + k] = scorer_grad[here + k]
    for k in range(a):
        network_grad[behind + hidden + k] = product_grad[k] * own[k]
        own_grad[k] = product_grad[k] * network[behind + hidden + k]
    for k in range(widths[-2] + 1):
        network_grad[behind + hidden + a + k] = scorer_grad[here + hidden + k]


@dataclass(frozen=True)
class Scorer:
    """How a problem's parameters make a scorer."""

    kind: int
    widths: Any
    """Of the perceptron on a row."""
    product: int
    """First columns of a row that are weighted directly."""
    own_name: str
    own: Tensor
    """The user vectors or linear units [c, ...]."""
    network: Tensor | None = None
    decay: float = 0.0
    """Of the network."""


def scorer_of(problem: Any, params: Params, dim: int) -> Scorer:
    """That of a problem on rows of ``dim`` columns."""
    if not isinstance(problem, PairNetwork):
        return Scorer(LINEAR, np.array([dim, 1], np.int64), 0, "unit", params["unit"])
    widths = np.array([dim - problem.product, *problem.widths[1:], 1], np.int64)
    return Scorer(NETWORK, widths, problem.product, "user", params["user"], params["network"], problem.decay)
