"""Item-item models as an ONNX graph: a history as a vector of weights goes in, scores of all items come out."""

from __future__ import annotations

from pathlib import Path

from fedrec.errors import ConfigError
from fedrec.running.files import writing
from fedrec.running.newcomers import Newcomers
from fedrec.serving.linear import MOST_ITEMS, linear_form

_OPSET = 17


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
    form = linear_form(newcomers)
    if form is None:
        raise ConfigError(
            f"{newcomers.method.name} has no fixed graph from a history to scores, or one of more than {MOST_ITEMS:,} items; "
            "fedslist, fedgram, ease, slist and itemknn have."
        )
    weights, base, decay = form.weights.numpy(), form.base.numpy(), form.decay
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
