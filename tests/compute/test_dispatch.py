"""Which code runs where: one rule."""

from __future__ import annotations

import pytest
import torch

from fedrec.compute import dispatch

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


class Elsewhere:
    """As much of a tensor on another device as the rule looks at."""

    device, dtype = CUDA, torch.float32


@pytest.mark.parametrize(("triton", "kind"), [(True, "gpu"), (False, None)])
def test_devices_have_the_code_that_is_there(triton: bool, kind: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "triton_installed", lambda: triton)
    assert dispatch.compiled_on(CPU) == "cpu"
    assert dispatch.compiled_on(CUDA) == kind
    assert dispatch.compiled_on(torch.device("meta")) is None
    assert dispatch.compiled_for(Elsewhere(), Elsewhere()) == kind


def test_tensors_must_be_float32_and_on_one_device() -> None:
    single = torch.zeros(2, 3)
    assert dispatch.compiled_for(single, single.T) == "cpu"
    assert dispatch.compiled_for(single, single.double()) is None
    assert dispatch.compiled_for(single, Elsewhere()) is None
    assert dispatch.compiled_for() is None


def test_compiled_code_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "triton_installed", lambda: True)
    monkeypatch.setenv("FEDREC_KERNELS", "off")
    assert dispatch.compiled_on(CPU) is None
    assert dispatch.compiled_on(CUDA) is None
    assert dispatch.compiled_for(torch.zeros(1)) is None
