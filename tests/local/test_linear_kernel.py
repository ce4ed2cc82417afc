"""The compiled linear units against ``fit``."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import fedrec
from fedrec.local.cpu.linear import train_additive, train_linear
from fedrec.local.fit import Batch, Params, Step, fit, lookup
from fedrec.parts.linear import unit_logits
from fedrec.sampling.negatives import Sampler
from fedrec.sampling.samples import Samples

DIM, RATES = 5, {"unit": 0.3, "personal": 4.0, "common": 4.0, "shrunk": 4.0}


def start(split: fedrec.Split, bias: bool = True) -> tuple[Samples, Params]:
    counts = torch.from_numpy(split.training.positives.counts)
    samples = Sampler(split.training).draw(counts.sort(descending=True).indices, negatives=4, seed=1, round=2)
    rng = torch.Generator().manual_seed(0)
    c, r = samples.rows.shape
    return samples, {
        "unit": torch.randn(c, DIM + bias, generator=rng),
        "personal": torch.randn(c, r, DIM, generator=rng),
        "common": torch.randn(c, r, DIM, generator=rng),
        "shrunk": torch.ones(c),
    }


def close(first: Params, second: Params, samples: Samples, *names: str) -> None:
    valid = torch.arange(samples.rows.shape[1]) < samples.row_counts[:, None]
    for name in names:
        pair = [p[name][valid] if p[name].dim() == 3 else p[name] for p in (first, second)]
        torch.testing.assert_close(*pair, atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize("epochs", [1, 3])
def test_linear_is_fit_with_two_steps(small: fedrec.Split, epochs: int) -> None:
    samples, params = start(small)
    again = {name: value.clone() for name, value in params.items()}
    options: dict[str, Any] = {"epochs": epochs, "batch_size": 16}

    def loss(params: Params, batch: Batch) -> Tensor:
        return batch.bce(unit_logits(params["unit"], lookup(params["common"], batch.slots)))

    steps = [Step(("unit",), 0.3, "sgd"), Step(("common",), 4.0, "sgd")]
    expected = fit(params, loss, samples, steps=steps, **options)
    found = train_linear(again["unit"], again["common"], samples, lr=0.3, lr_item=4.0, **options)
    close(params, again, samples, "unit", "common")
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(
    ("l1", "l2", "bias", "tol"), [(0.3, 0.0, True, 0.0), (0.0, 0.3, False, 0.0), (0.2, 0.1, True, 0.3)]
)
def test_additive_is_fit(small: fedrec.Split, l1: float, l2: float, bias: bool, tol: float) -> None:
    samples, params = start(small, bias)
    again = {name: value.clone() for name, value in params.items()}
    options: dict[str, Any] = {"epochs": 4, "batch_size": 40, "early_stop_tol": tol}

    def loss(params: Params, batch: Batch) -> Tensor:
        own, common = lookup(params["personal"], batch.slots), lookup(params["common"], batch.slots)
        value = batch.bce(unit_logits(params["unit"], own + common)) + 0 * params["shrunk"]
        value = value - 0.2 * batch.mean((own - common).square().mean(2))
        return value + l1 * batch.mean(common.abs().mean(2)) + l2 * batch.mean(common.square().mean(2))

    step = Step(tuple(RATES), RATES, "sgd", weight_decay=0.01, lr_decay=0.9)
    expected = fit(params, loss, samples, steps=[step], **options)
    found = train_additive(
        again["unit"], again["personal"], again["common"], again["shrunk"], samples,
        lr=0.3, lr_rows=4.0, lr_decay=0.9, weight_decay=0.01, apart=0.2, l1=l1, l2=l2, **options,
    )  # fmt: skip
    close(params, again, samples, *RATES)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)
    if tol:
        assert len(again["shrunk"].unique()) > 2, "clients must have stopped at different times"
