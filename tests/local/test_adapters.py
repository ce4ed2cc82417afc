"""Merging adapters: the readable forward pass, its gradients, and the compiled one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fedrec.local import adapters as module
from fedrec.local.adapters import MergingAdapter, adapter_widths
from fedrec.local.fit import Batch
from fedrec.sampling import streams

CLIENTS, ITEMS, DIM = 3, 70, 4
WIDTHS = adapter_widths(DIM)
ADAPTER = MergingAdapter(WIDTHS)


def tables(seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    local = torch.randn(CLIENTS, ITEMS, DIM, generator=generator)
    return local, torch.randn(CLIENTS, ITEMS, DIM, generator=generator)


def adapters(widths: tuple[int, ...] = WIDTHS, n: int = CLIENTS) -> Tensor:
    return MergingAdapter(widths).network.draw_each(streams.keys(7, streams.Purpose.INIT, 0, torch.arange(n)))


def test_default_adapter_has_673_parameters() -> None:
    assert adapter_widths(16) == (32, 16, 8, 1)
    assert MergingAdapter(adapter_widths(16)).network.size == 673


def test_init_is_uniform_within_the_fan_in_bound_and_fills_it() -> None:
    theta = adapters(n=400)
    for (weight, bias), fan_in in zip(ADAPTER.network.layers(theta), WIDTHS, strict=False):
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
    rho = ADAPTER.weights(theta, local, server)
    assert rho.shape == (CLIENTS, ITEMS)
    for c in range(CLIENTS):
        x = torch.cat([local[c], server[c] - local[c]], 1)
        (w1, b1), (w2, b2), (w3, b3) = ((w[c], b[c]) for w, b in ADAPTER.network.layers(theta))
        want = torch.sigmoid(torch.relu(torch.relu(x @ w1.T + b1) @ w2.T + b2) @ w3.T + b3)
        torch.testing.assert_close(rho[c], want[:, 0])


@pytest.mark.parametrize("hidden", [(16, 8), (), (5,), (9, 9, 9)])
@pytest.mark.parametrize("items", [1, 31, 300])
def test_compiled_weights_equal_the_adapter(hidden: tuple[int, ...], items: int) -> None:
    generator = torch.Generator().manual_seed(1)
    local = torch.randn(CLIENTS, items, DIM, generator=generator)
    server = torch.randn(items, DIM, generator=generator)
    widths = adapter_widths(DIM, hidden)
    theta, adapter = adapters(widths), MergingAdapter(widths)
    want = adapter.weights(theta, local, server)
    torch.testing.assert_close(adapter.table_weights(theta, local, server), want)
    own = server + torch.arange(CLIENTS)[:, None, None]
    want = adapter.weights(theta, local, own)
    torch.testing.assert_close(adapter.table_weights(theta, local, own), want)
    one = server.expand(CLIENTS, -1, -1)
    assert torch.equal(adapter.table_weights(theta, local, one), adapter.table_weights(theta, local, server))


@pytest.mark.parametrize("chunk", [1, 50, 150])
@pytest.mark.parametrize("shared", [False, True])
def test_chunks_do_not_change_the_weights(chunk: int, shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    local, server = (table.double() for table in tables())
    server = server[0] if shared else server
    theta = adapters().double()
    want = ADAPTER.table_weights(theta, local, server)
    monkeypatch.setattr(module, "CHUNK_ROWS", chunk)
    torch.testing.assert_close(ADAPTER.table_weights(theta, local, server), want)


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
    loss = ADAPTER.loss
    inputs = tuple(value.requires_grad_() for value in values)
    assert torch.autograd.gradcheck(lambda *xs: loss(dict(zip(names, xs, strict=True)) | pool, batch), inputs)


def test_only_the_adapter_input_carries_gradient_beyond_the_weight() -> None:
    """A local row pulls on rho with the difference of the two halves of the adapter's input."""
    local, server = (table[:1, :1].double() for table in tables())
    local.requires_grad_()
    theta = adapters(n=1).double()
    (got,) = torch.autograd.grad(ADAPTER.weights(theta, local, server).sum(), local)
    halves = torch.cat([local, server - local], 2).detach().requires_grad_()
    units = halves
    for depth, (weight, bias) in enumerate(ADAPTER.network.layers(theta)):
        units = (units.relu() if depth else units) @ weight.mT + bias[:, None]
    (slopes,) = torch.autograd.grad(units.sigmoid().sum(), halves)
    torch.testing.assert_close(got, slopes[:, :, :DIM] - slopes[:, :, DIM:])
