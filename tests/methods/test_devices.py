"""Every method gives on a GPU what it gives on a CPU, to rounding."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from fedrec.data import load
from fedrec.federation.trainer import Setup
from fedrec.methods import create, names
from fedrec.protocol import HONEST

USERS = torch.arange(0, 60)


@pytest.fixture(scope="module")
def split():
    return HONEST.split(load("demo"), seed=0)


def first_rounds(name: str, split, device: str) -> Iterator[tuple[float, torch.Tensor]]:
    trainer = create(name).trainer(split.training, Setup(device=torch.device(device)))
    for number in range(2):
        yield trainer.round(number).loss, trainer.scores(USERS).float().cpu()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", [name for name in names() if name != "blend"])
def test_a_gpu_gives_what_a_cpu_gives(name, split):
    pairs = zip(first_rounds(name, split, "cpu"), first_rounds(name, split, "cuda"), strict=True)
    for (loss, scores), (gpu_loss, gpu_scores) in pairs:
        assert gpu_loss == pytest.approx(loss, rel=2e-3, abs=1e-5)
        spread = scores.std(1)
        known = spread > 0
        apart = (gpu_scores - scores).abs().mean(1)
        # Adam turns rounding into steps: ncf is 0.03 apart after two epochs; runs of two seeds are about 1 apart.
        assert float((apart[known] / spread[known]).median()) < 0.1, name
        assert np.isfinite(gpu_scores.numpy()).all()
