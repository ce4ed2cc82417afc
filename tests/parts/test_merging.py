from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fedrec.errors import ConfigError
from fedrec.local.fit import Batch
from fedrec.parts import merging
from fedrec.sampling import streams

CLIENTS, ITEMS, DIM = 3, 70, 4
WIDTHS = merging.adapter_widths(DIM)


def tables(seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    local = torch.randn(CLIENTS, ITEMS, DIM, generator=generator)
    return local, torch.randn(CLIENTS, ITEMS, DIM, generator=generator)


def adapters(widths: tuple[int, ...] = WIDTHS, n: int = CLIENTS) -> Tensor:
    return merging.init_adapters(widths, streams.keys(7, streams.Purpose.INIT, 0, torch.arange(n)))


def constant_adapters(rho: float) -> Tensor:
    theta = torch.zeros(CLIENTS, merging.adapter_size(WIDTHS))
    theta[:, -1] = torch.tensor(rho).logit()
    return theta


def test_default_adapter_has_673_parameters() -> None:
    assert merging.adapter_widths(16) == (32, 16, 8, 1)
    assert merging.adapter_size(merging.adapter_widths(16)) == 673


def test_init_is_uniform_within_the_fan_in_bound_and_fills_it() -> None:
    theta = adapters(n=400)
    for (weight, bias), fan_in in zip(merging.layers(theta, WIDTHS), WIDTHS, strict=False):
        for values in (weight, bias):
            assert values.abs().max() <= fan_in**-0.5
            assert values.abs().max() > 0.95 * fan_in**-0.5
            assert values.mean().abs() < 0.1 * fan_in**-0.5
    assert not torch.equal(theta[0], theta[1])


def test_init_does_not_depend_on_the_cohort() -> None:
    assert torch.equal(adapters(n=5)[2], adapters(n=3)[2])


def test_adapter_equals_a_linear_stack_per_client() -> None:
    local, server = tables()
    theta = adapters()
    rho = merging.adapter(theta, WIDTHS, local, server)
    assert rho.shape == (CLIENTS, ITEMS)
    for c in range(CLIENTS):
        x = torch.cat([local[c], server[c] - local[c]], 1)
        (w1, b1), (w2, b2), (w3, b3) = ((w[c], b[c]) for w, b in merging.layers(theta, WIDTHS))
        want = torch.sigmoid(torch.relu(torch.relu(x @ w1.T + b1) @ w2.T + b2) @ w3.T + b3)
        torch.testing.assert_close(rho[c], want[:, 0])


@pytest.mark.parametrize("hidden", [(16, 8), (), (5,), (9, 9, 9)])
@pytest.mark.parametrize("items", [1, 31, 300])
def test_compiled_weights_equal_the_adapter(hidden: tuple[int, ...], items: int) -> None:
    generator = torch.Generator().manual_seed(1)
    local = torch.randn(CLIENTS, items, DIM, generator=generator)
    server = torch.randn(items, DIM, generator=generator)
    widths = merging.adapter_widths(DIM, hidden)
    theta = adapters(widths)
    want = merging.adapter(theta, widths, local, server)
    torch.testing.assert_close(merging.row_weights(theta, widths, local, server), want)
    own = server + torch.arange(CLIENTS)[:, None, None]
    want = merging.adapter(theta, widths, local, own)
    torch.testing.assert_close(merging.row_weights(theta, widths, local, own), want)


@pytest.mark.parametrize("chunk", [1, 50, 150])
@pytest.mark.parametrize("shared", [False, True])
def test_chunks_do_not_change_the_weights(chunk: int, shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    local, server = (table.double() for table in tables())
    server = server[0] if shared else server
    theta = adapters().double()
    want = merging.row_weights(theta, WIDTHS, local, server)
    monkeypatch.setattr(merging, "CHUNK_ROWS", chunk)
    torch.testing.assert_close(merging.row_weights(theta, WIDTHS, local, server), want)


def test_weight_zero_keeps_the_local_table_bit_for_bit() -> None:
    local, server = tables()
    never = torch.zeros(CLIENTS, merging.adapter_size(WIDTHS))
    never[:, -1] = -200  # the sigmoid is exactly 0
    assert torch.equal(merging.merge("none", local, server), local)
    assert torch.equal(merging.merge("static", local, server, rho=0.0), local)
    assert torch.equal(merging.merge("dynamic", local, server, theta=never), local)
    assert torch.equal(merging.merge("elastic", local, server, theta=never), local)


def test_weight_one_replaces() -> None:
    local, server = tables()
    always = torch.zeros(CLIENTS, merging.adapter_size(WIDTHS))
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
    rho = merging.adapter(theta, WIDTHS, local, server)
    assert rho.std(1).min() > 0
    want = local + rho.mean(1)[:, None, None] * (server - local)
    torch.testing.assert_close(merging.merge("dynamic", local, server, theta=theta), want)
    torch.testing.assert_close(
        merging.merge("elastic", local, server, theta=theta), local + rho[:, :, None] * (server - local)
    )


def test_dynamic_weight_on_the_mean_row() -> None:
    local, server = tables()
    theta = adapters()
    rho = merging.adapter(theta, WIDTHS, local.mean(1, keepdim=True), server.mean(1, keepdim=True))
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


@pytest.mark.parametrize("pooled", [False, True])
def test_gradients_of_the_loss_equal_finite_differences(pooled: bool) -> None:
    generator = torch.Generator().manual_seed(2)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    slots = torch.tensor([[0, 1, 1, 2], [3, 0, 2, 0]], dtype=torch.int32)  # rows repeat
    labels = torch.tensor([[1, 0, 0, 1], [0, 1, 1, 0]], dtype=torch.float64)
    mask = torch.tensor([[True] * 4, [True] * 3 + [False]])  # the second client's batch is short
    batch = Batch(torch.arange(2), slots, slots, labels, mask)
    names = ("adapter", "user", "local", "server")
    values = [adapters(n=2).double(), normal(2, DIM), normal(2, 4, DIM), normal(2, 4, DIM)]
    pool = {"pool_local": normal(2, 6, DIM), "pool_server": normal(2, 6, DIM)} if pooled else {}
    loss = merging.adapter_loss(WIDTHS)
    inputs = tuple(value.requires_grad_() for value in values)
    assert torch.autograd.gradcheck(lambda *xs: loss(dict(zip(names, xs, strict=True)) | pool, batch), inputs)


def test_only_the_adapter_input_carries_gradient_beyond_the_weight() -> None:
    """A local row pulls on rho with the difference of the two halves of the adapter's input."""
    local, server = (table[:1, :1].double() for table in tables())
    local.requires_grad_()
    theta = adapters(n=1).double()
    (got,) = torch.autograd.grad(merging.adapter(theta, WIDTHS, local, server).sum(), local)
    halves = torch.cat([local, server - local], 2).detach().requires_grad_()
    units = halves
    for depth, (weight, bias) in enumerate(merging.layers(theta, WIDTHS)):
        units = (units.relu() if depth else units) @ weight.mT + bias[:, None]
    (slopes,) = torch.autograd.grad(units.sigmoid().sum(), halves)
    torch.testing.assert_close(got, slopes[:, :, :DIM] - slopes[:, :, DIM:])


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
