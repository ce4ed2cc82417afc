"""What a method sends: bytes per client and round at the size of MovieLens-1M, measured on a few clients like its average."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from fedrec.data.training import Ragged, TrainingView
from fedrec.federation.trainer import Setup
from fedrec.methods import find
from fedrec.methods.central.base import CentralMethod

ITEMS, POSITIVES, CLIENTS, DIM = 3706, 164, 20, 16
"""MovieLens-1M has 3,706 items and 166 rows per user, two of which are held out."""


@cache
def bytes_per_round(name: str) -> tuple[float, float] | None:
    """Bytes (up, down) per client in one round at d = 16; None for centralised methods, which collect everything, and for what
    is made of others, which send what they send."""
    kind = find(name)
    if issubclass(kind, CentralMethod) or kind.of_parts:
        return None
    rng = np.random.default_rng(0)
    rows = np.concatenate([np.sort(rng.choice(ITEMS, POSITIVES, replace=False)) for _ in range(CLIENTS)])
    owners = np.repeat(np.arange(CLIENTS), POSITIVES)
    lists = Ragged.build(owners, rows, CLIENTS)
    view = TrainingView(CLIENTS, ITEMS, lists, lists)
    # One local step is enough to see what is sent; everything else is the method's default.
    cheap: dict[str, Any] = {
        "dim": DIM,
        "epochs": 1,
        "batch_size": 4096,
        "participation": 1.0,
        "align_steps": 1,
        "gain_rounds": 0,
    }
    options = {key: value for key, value in cheap.items() if key in kind.Config.model_fields}
    trainer = kind(kind.configure(options)).trainer(view, Setup())
    trainer.round(0)
    report = trainer.round(1)
    return report.bytes_up / max(1, report.clients), report.bytes_down / max(1, report.clients)
