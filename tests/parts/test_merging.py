from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fedrec.errors import ConfigError
from fedrec.local.adapters import MergingAdapter, adapter_widths
from fedrec.parts import merging
from fedrec.sampling import streams

CLIENTS, ITEMS, DIM = 3, 70, 4
WIDTHS = adapter_widths(DIM)
ADAPTER = MergingAdapter(WIDTHS)


def tables(seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    local = torch.randn(CLIENTS, ITEMS, DIM, generator=generator)
    return local, torch.randn(CLIENTS, ITEMS, DIM, generator=generator)


def adapters() -> Tensor:
    return ADAPTER.network.draw_each(streams.keys(7, streams.Purpose.INIT, 0, torch.arange(CLIENTS)))


def constant_adapters(rho: float) -> Tensor:
    theta = torch.zeros(CLIENTS, ADAPTER.network.size)
    theta[:, -1] = torch.tensor(rho).logit()
    return theta


def test_weight_zero_keeps_the_local_table_bit_for_bit() -> None:
    local, server = tables()
    never = torch.zeros(CLIENTS, ADAPTER.network.size)
    never[:, -1] = -200  # the sigmoid is exactly 0
    assert torch.equal(merging.merge("none", local, server), local)
    assert torch.equal(merging.merge("static", local, server, rho=0.0), local)
    assert torch.equal(merging.merge("dynamic", local, server, theta=never), local)
    assert torch.equal(merging.merge("elastic", local, server, theta=never), local)


def test_weight_one_replaces() -> None:
    local, server = tables()
    always = torch.zeros(CLIENTS, ADAPTER.network.size)
    always[:, -1] = 200
    want = merging.merge("replace", local, server)
    assert torch.equal(want, server)
    for got in (
        merging.merge("static", local, server, rho=1.0),
        merging.merge("dynamic", local, server, theta=always),
        merging.merge("elastic", local, server, theta=always),
    ):
        torch.testing.assert_close(got, want, atol=1e-6, rtol=0)


@pytest.mark.parametrize("pool", ["items", "row"])
def test_dynamic_and_elastic_with_a_constant_adapter_are_static(pool: merging.Pool) -> None:
    local, server = tables()
    want = merging.merge("static", local, server, rho=0.3)
    theta = constant_adapters(0.3)
    torch.testing.assert_close(merging.merge("dynamic", local, server, theta=theta, pool=pool), want)
    torch.testing.assert_close(merging.merge("elastic", local, server, theta=theta), want)


def test_dynamic_weight_is_the_mean_of_the_elastic_ones() -> None:
    local, server = tables()
    theta = adapters()
    rho = ADAPTER.weights(theta, local, server)
    assert rho.std(1).min() > 0
    want = local + rho.mean(1)[:, None, None] * (server - local)
    torch.testing.assert_close(merging.merge("dynamic", local, server, theta=theta), want)
    torch.testing.assert_close(
        merging.merge("elastic", local, server, theta=theta), local + rho[:, :, None] * (server - local)
    )


def test_dynamic_weight_on_the_mean_row() -> None:
    local, server = tables()
    theta = adapters()
    rho = ADAPTER.weights(theta, local.mean(1, keepdim=True), server.mean(1, keepdim=True))
    want = local + rho[:, :, None] * (server - local)
    torch.testing.assert_close(merging.merge("dynamic", local, server, theta=theta, pool="row"), want)


@pytest.mark.parametrize("mode", ["none", "replace", "static", "dynamic", "elastic"])
def test_merge_of_many_clients_is_merges_of_one_with_a_shared_table_and_in_place(mode: merging.Mode) -> None:
    local, server = tables()
    theta, before = adapters(), local.clone()
    want = merging.merge(mode, local, server[1], theta=theta, rho=0.25)
    assert torch.equal(local, before)
    assert want.data_ptr() != local.data_ptr()
    for c in range(CLIENTS):
        one = slice(c, c + 1)
        assert torch.equal(merging.merge(mode, local[one], server[1], theta=theta[one], rho=0.25)[0], want[c])
    merging.merge(mode, local, server[1], theta=theta, rho=0.25, out=local)
    assert torch.equal(local, want)


@pytest.mark.parametrize(
    ("mode", "options", "message"),
    [
        ("elastik", {}, "did you mean 'elastic'"),
        ("static", {"rho": 1.5}, "between 0 and 1"),
        ("static", {"rho": -0.1}, "between 0 and 1"),
        ("static", {}, "between 0 and 1"),
        ("elastic", {}, "needs the clients' adapters"),
        ("elastic", {"theta": torch.zeros(3, 9), "widths": (8, 4)}, "end in 1"),
        ("elastic", {"theta": torch.zeros(3, 9), "widths": (7, 1)}, "start at 8"),
        ("dynamic", {"theta": torch.zeros(3, 9), "pool": "item"}, "did you mean 'items'"),
    ],
)
def test_wrong_settings_are_refused(mode: merging.Mode, options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        merging.merge(mode, *tables(), **options)  # type: ignore[arg-type]
