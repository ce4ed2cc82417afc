"""Item-item models as an ONNX graph: a history as a vector of weights goes in, scores of all items come out."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrec.errors import ConfigError
from fedrec.federation.trainer import FromHistory
from fedrec.running.files import writing
from fedrec.running.newcomers import Newcomers

MOST_ITEMS = 20_000
"""The weights of more do not fit into one file of the format."""
_AT_ONCE, _OPSET = 512, 17


def write_onnx(newcomers: Newcomers, path: Path) -> float | None:
    """Write the graph; returns the decay of weights with age, or None where all items of a history weigh the same.

    Input ``history``, float [n, items]: 1 for the newest item of a history, exp(-age / decay) for those before it, where
    age counts items; 0 for others. Output ``scores``, float [n, items].
    """
    try:
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        raise ConfigError("ONNX files need onnx; install it with: pip install 'fedrec[onnx]'.") from None
    weights, base, decay = linear_form(newcomers)
    m = len(base)
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["history", "weights"], ["sums"]),
            helper.make_node("Add", ["sums", "base"], ["scores"]),
        ],
        "fedrec",
        [helper.make_tensor_value_info("history", TensorProto.FLOAT, ["n", m])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", m])],
        [numpy_helper.from_array(weights, "weights"), numpy_helper.from_array(base, "base")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], producer_name="fedrec")
    model.ir_version = 8  # what runtimes of some years ago read
    helper.set_model_props(model, {"method": newcomers.method.name, "decay": "none" if decay is None else repr(decay)})
    onnx.checker.check_model(model)
    with writing(path) as part:
        onnx.save(model, str(part))
    return decay


def history_vector(history: Tensor, n_items: int, decay: float | None) -> NDArray[np.float32]:
    """What goes into the graph for the items [W] of one history, oldest first: [items]."""
    found = np.zeros(n_items, np.float32)
    age = np.arange(len(history) - 1, -1, -1)
    found[history.numpy()] = 1.0 if decay is None else np.exp(-age / decay)
    return found


@torch.no_grad()
def linear_form(newcomers: Newcomers) -> tuple[NDArray[np.float32], NDArray[np.float32], float | None]:
    """Weights [m, m], what every score has without a history [m], and the decay; refuses models that have no such form."""
    method, m, trainer = newcomers.method, newcomers.n_items, newcomers.trainer
    if not newcomers.at_once or not method.explains or not isinstance(trainer, FromHistory):
        raise ConfigError(
            f"{method.name} has no fixed graph from a history to scores; fedslist, fedgram, ease, slist and itemknn have."
        )
    if m > MOST_ITEMS:
        raise ConfigError(f"a graph of {m:,} items needs {4 * m * m / 1e9:.1f} GB; {MOST_ITEMS:,} items are the most.")
    base = trainer.scores_from(torch.tensor([[-1]]))[0].cpu().float()
    blocks = [
        trainer.scores_from(part[:, None]).cpu().float() - base for part in torch.split(torch.arange(m), _AT_ONCE)
    ]
    weights = torch.cat(blocks)
    decay = _decay(trainer, weights, base)
    found = weights.numpy(), base.numpy(), decay
    _check_linear(trainer, found)
    return found


def _decay(trainer: Any, weights: Tensor, base: Tensor) -> float | None:
    """How fast items lose weight with age, from a history of two."""
    old = int(weights.abs().max(1).values.argmax())
    new = (old + 1) % len(weights)
    both = trainer.scores_from(torch.tensor([[old, new]]))[0].cpu().float()
    column = int(weights[old].abs().argmax())
    share = float((both[column] - base[column] - weights[new, column]) / weights[old, column])
    return None if share > 1 - 1e-5 or share <= 0 else -1 / math.log(share)


def _check_linear(trainer: Any, form: tuple[NDArray[np.float32], NDArray[np.float32], float | None]) -> None:
    weights, base, decay = form
    random = np.random.default_rng(0)
    for length in (1, 3, 8):
        history = torch.from_numpy(random.choice(len(base), min(length, len(base)), replace=False))
        expected = trainer.scores_from(history[None])[0].cpu().numpy()
        found = history_vector(history, len(base), decay) @ weights + base
        if not np.allclose(found, expected, rtol=1e-3, atol=1e-4 * max(1.0, float(np.abs(expected).max()))):
            raise ConfigError(
                "the scores of this model are no weighted sum over a history, so there is no fixed graph of them."
            )
