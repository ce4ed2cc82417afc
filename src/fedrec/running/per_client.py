"""Per-client metric values as named tensors, and back: what ``per_client.safetensors`` and checkpoints hold."""

from __future__ import annotations

import torch
from torch import Tensor

from fedrec.evaluation.evaluator import Evaluation


def pack(results: dict[str, Evaluation]) -> dict[str, Tensor]:
    """Tensors named ``part/ranking/metric``."""
    named: dict[str, Tensor] = {}
    for part, evaluation in results.items():
        for kind, values in (("sampled", evaluation.sampled), ("full", evaluation.full)):
            named |= {f"{part}/{kind}/{name}": torch.from_numpy(value) for name, value in values.items()}
    return named


def unpack(tensors: dict[str, Tensor]) -> dict[str, Evaluation]:
    """The inverse of ``pack``."""
    results: dict[str, Evaluation] = {}
    for key, value in tensors.items():
        part, kind, name = key.split("/")
        evaluation = results.setdefault(part, Evaluation())
        (evaluation.sampled if kind == "sampled" else evaluation.full)[name] = value.numpy()
    return results
