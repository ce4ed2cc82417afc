"""Merging as a client does it: an adapter is trained through what merging looks at."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits as bce

import fedrec
from fedrec.data.training import TrainingView
from fedrec.federation.store import ClientState
from fedrec.federation.task import Task
from fedrec.local.factorisation import MatrixFactorisation
from fedrec.local.fit import Batch, Params, Schedule, Step, take_rows
from fedrec.local.problem import LossOnly
from fedrec.parts.merger import (
    ADAPTER,
    OWN,
    STARTED,
    MergedBlock,
    MergedSamples,
    Merger,
    MergeSettings,
    empty_table,
    keep_table,
    look_through,
    own_table,
    widened,
)
from fedrec.parts.merging import Mode, Pool
from fedrec.sampling.negatives import Sampler

CLIENTS, DIM, LR = 3, 4, 0.05


def task(view: TrainingView) -> Task:
    counts = torch.from_numpy(view.positives.counts)
    return Task(view.n_clients, view.n_items, counts, 0, torch.device("cpu"))


def by_hand(
    merger: Merger, theta: Tensor, user: Tensor, tables: tuple[Tensor, Tensor], items: Tensor, labels: Tensor
) -> Tensor:
    """One step of Adam on one adapter [1, P] by autograd on whole tables [1, m, d]."""
    theta = theta.clone().requires_grad_()
    local, server = tables
    if merger.settings.merge == "elastic":
        rho = merger.adapter.weights(theta, local, server)
    elif merger.settings.dynamic_pool == "items":
        rho = merger.adapter.weights(theta, local, server).mean(1, keepdim=True)
    else:
        rho = merger.adapter.weights(theta, local.mean(1, keepdim=True), server.mean(1, keepdim=True))
    table = local + rho[:, :, None] * (server - local)
    optimiser = torch.optim.Adam([theta], lr=LR)
    bce(table[0, items] @ user, labels).backward()  # type: ignore[no-untyped-call]
    optimiser.step()
    return theta.detach()


@pytest.mark.parametrize("problem", ["dot", "block"])
@pytest.mark.parametrize(("mode", "pool"), [("elastic", "items"), ("dynamic", "items"), ("dynamic", "row")])
def test_the_adapter_phase_is_its_definition(small: fedrec.Split, mode: Mode, pool: Pool, problem: str) -> None:
    samples = Sampler(small.training).draw(torch.arange(CLIENTS), negatives=4, seed=0, round=0)
    draw = torch.Generator().manual_seed(0)
    local, server = (torch.randn(CLIENTS, small.data.n_items, DIM, generator=draw) for _ in range(2))
    user = torch.randn(CLIENTS, DIM, generator=draw)
    merger = Merger(MergeSettings(merge=mode, dynamic_pool=pool), DIM)
    theta = merger.draw(task(small.training), stream=1, clients=torch.arange(CLIENTS))
    start, rows = theta.clone(), (take_rows(local, samples), take_rows(server, samples))
    dot = LossOnly(
        lambda params, batch: batch.bce(
            (params["block"] @ params["user"].unsqueeze(2)).squeeze(2).gather(1, batch.slots.long())
        )
    )
    through = None if problem == "dot" else MergedBlock(merger.adapter, dot)
    params = {"user": user.clone()}
    merger.adapt(theta, params, rows, samples, Schedule(1, 10_000), LR, tables=lambda: (local, server), through=through)
    for c in range(CLIENTS):
        items, labels = (x[c, : samples.counts[c]] for x in (samples.items, samples.labels))
        one = slice(c, c + 1)
        expected = by_hand(merger, start[one], user[c], (local[one], server[one]), items.long(), labels)
        moved = (theta[c] - start[c]).abs() > 0.5 * LR  # Adam's first step has the sign of the gradient alone
        assert int(moved.sum()) > 20
        torch.testing.assert_close(theta[c][moved], expected[0][moved], atol=1e-4, rtol=1e-4)
    assert torch.equal(params["user"], user), "nothing but the adapter moves"


def test_adapters_are_common_or_of_each_client(small: fedrec.Split) -> None:
    merger, about = Merger(MergeSettings(), DIM), task(small.training)
    assert merger.draw(about, stream=1).shape == (1, merger.adapter.network.size)
    each = merger.draw(about, stream=1, clients=torch.arange(4))
    assert not torch.equal(each[0], each[1])
    assert not torch.equal(each, merger.draw(about, stream=2, clients=torch.arange(4)))
    assert [Merger(MergeSettings(merge=mode), DIM).adapts for mode in ("dynamic", "elastic")] == [True, True]
    assert not any(Merger(MergeSettings(merge=mode), DIM).adapts for mode in ("none", "static", "replace"))


def state(own: list[list[list[float]]], started: list[bool], adapter: Tensor | None = None) -> ClientState:
    tensors = {OWN: torch.tensor(own), STARTED: torch.tensor(started)}
    return ClientState(tensors | ({} if adapter is None else {ADAPTER: adapter}), torch.arange(len(own)))


SERVER = torch.tensor([[[8.0], [16.0]]]).expand(2, 2, 1)


def test_a_clients_table_is_at_first_the_download() -> None:
    """The second client has one of its own; tables that are wider than the download are cut."""
    found = own_table(state([[[1.0], [2.0]], [[3.0], [4.0]]], [False, True]), SERVER)
    assert found.flatten(1).tolist() == [[8, 16], [3, 4]]
    wide = own_table(state([[[1.0, 9.0], [2.0, 9.0]], [[3.0, 9.0], [4.0, 9.0]]], [False, True]), SERVER)
    assert wide.flatten(1).tolist() == [[8, 16], [3, 4]]


def test_a_kept_table_is_the_own_one_from_then_on() -> None:
    private = state([[[1.0, 9.0], [2.0, 9.0]]], [False])
    keep_table(private, torch.tensor([[[5.0], [6.0]]]))
    assert private[OWN].tolist() == [[[5.0, 0.0], [6.0, 0.0]]]
    assert private[STARTED].tolist() == [True]
    assert own_table(private, SERVER[:1]).flatten().tolist() == [5, 6]


def test_narrow_values_are_widened_with_zeros_on_the_right() -> None:
    values = torch.tensor([[1.0, 2.0]])
    assert widened(values, torch.zeros(1, 4)).tolist() == [[1, 2, 0, 0]]
    assert widened(values, torch.zeros(3, 2)) is values


def test_an_empty_table_takes_no_memory_and_has_not_started() -> None:
    about = Task(9, 5, torch.ones(9, dtype=torch.int64), 0, torch.device("meta"))
    found = empty_table(about, 3, 4)
    assert {name: (value.shape, value.device.type) for name, value in found.items()} == {
        OWN: ((3, 5, 4), "meta"), STARTED: ((3,), "meta"),
    }  # fmt: skip
    assert found[STARTED].dtype == torch.bool
    assert found[OWN].stride(0) == 0
    here = empty_table(Task(9, 5, torch.ones(9, dtype=torch.int64), 0, torch.device("cpu")), 3, 4)
    assert not here[OWN].any()
    assert not here[STARTED].any()


@pytest.mark.parametrize(
    ("mode", "share"), [("none", 0.0), ("replace", 1.0), ("static", 0.25), ("dynamic", 0.75), ("elastic", 0.75)]
)
def test_tables_are_mixed_with_the_share_of_the_download(mode: Mode, share: float) -> None:
    """Adapters that say 0.75 whatever they see; the first client has no table yet, the other 3 and 4 against 8 and 16."""
    merger = Merger(MergeSettings(merge=mode, rho=0.25, adapter_hidden=(2,)), 1)
    theta = torch.zeros(2, merger.adapter.network.size)
    theta[:, -1] = torch.tensor(0.75).logit()
    private = state([[[1.0], [2.0]], [[3.0], [4.0]]], [False, True], theta.clone())
    expected = [[8, 16], [3 + share * 5, 4 + share * 12]]
    assert merger.update(private, SERVER).flatten(1).tolist() == [pytest.approx(row) for row in expected]
    mixture = merger.kept_mixture(private, SERVER)
    assert mixture.share.tolist() == [[1.0, 1.0], pytest.approx([share, share])]
    assert mixture.merged.flatten(1).tolist() == [pytest.approx(row) for row in expected]
    assert mixture.own[1].flatten().tolist() == [3, 4]
    assert mixture.server.flatten(1).tolist() == [[8, 16]] * 2
    assert torch.equal(private[ADAPTER], theta), "nobody trained them"
    assert private[OWN].flatten().tolist() == [1, 2, 3, 4]


def test_adapters_are_trained_before_tables_are_merged_and_kept_then() -> None:
    """As wide as the widest of all clients; this one's has fewer numbers."""
    merger = Merger(MergeSettings(adapter_hidden=(2,)), 1)
    size = merger.adapter.network.size
    private = state([[[1.0], [2.0]], [[3.0], [4.0]]], [False, True], torch.full((2, size + 3), 9.0))
    seen: list[Tensor] = []

    def adapt(theta: Tensor, local: Tensor) -> None:
        assert theta.shape == (2, size)
        seen.append(local)
        theta.zero_()

    found = merger.update(private, SERVER, adapt)
    assert seen[0].flatten(1).tolist() == [[8, 16], [3, 4]]
    assert found.flatten(1).tolist() == [[8, 16], [5.5, 10]], "an adapter of zeros says one half"
    assert private[ADAPTER].tolist() == [[0.0] * (size + 3)] * 2


def plain(params: Params, batch: Batch) -> Tensor:
    rows = params["block"].gather(1, batch.slots.long()[:, :, None].expand(-1, -1, DIM))
    return batch.bce((rows @ params["user"].unsqueeze(2)).squeeze(2))


@pytest.mark.parametrize("through", [True, False])
@pytest.mark.parametrize("first", [True, False])
def test_rows_are_trained_through_the_adapter_or_as_they_are(small: fedrec.Split, first: bool, through: bool) -> None:
    """One step of plain gradient descent against autograd, client by client."""
    samples = Sampler(small.training).draw(torch.arange(CLIENTS), negatives=4, seed=0, round=0)
    draw = torch.Generator().manual_seed(0)
    local, server = (take_rows(torch.randn(small.data.n_items, DIM, generator=draw), samples) for _ in range(2))
    user = torch.randn(CLIENTS, DIM, generator=draw)
    merger = Merger(MergeSettings(), DIM)
    theta = merger.draw(task(small.training), stream=1, clients=torch.arange(CLIENTS))
    params, moved = {"user": user.clone(), "block": local.clone()}, theta.clone()
    step, adapting = Step(("user", "block"), LR, "sgd"), Step(("adapter",), 10 * LR, "sgd")
    losses = merger.train_through(
        moved, server, LossOnly(plain), params, samples, Schedule(1, 10_000), [step],
        first=adapting if first else None, through=through,
    )  # fmt: skip

    def loss(c: int, theta: Tensor, block: Tensor, user: Tensor, merging: bool) -> Tensor:
        slots, labels = samples.slots[c, : samples.counts[c]].long(), samples.labels[c, : samples.counts[c]]
        one = server[c : c + 1]
        rows = block + merger.adapter.weights(theta[None], block[None], one)[0, :, None] * (one[0] - block)
        return bce((rows if merging else block)[slots] @ user, labels)

    for c in range(CLIENTS):
        leaves = [value[c].clone().requires_grad_() for value in (theta, local, user)]
        own, block, vector = leaves
        if first:
            (slope,) = torch.autograd.grad(loss(c, own, block, vector, True), [own])
            own = (own - 10 * LR * slope).detach()
        value = loss(c, own, block, vector, through)
        of_block, of_user = torch.autograd.grad(value, [block, vector])
        close = {"atol": 1e-5, "rtol": 1e-4}
        torch.testing.assert_close(moved[c], own.detach(), **close)
        torch.testing.assert_close(params["block"][c], block.detach() - LR * of_block, **close)
        torch.testing.assert_close(params["user"][c], vector.detach() - LR * of_user, **close)
        assert float(losses[c]) == pytest.approx(float(value.detach()), rel=1e-4)


def test_rows_and_the_rest_may_move_at_different_rates(small: fedrec.Split) -> None:
    samples = Sampler(small.training).draw(torch.arange(CLIENTS), negatives=4, seed=0, round=0)
    merger, draw = Merger(MergeSettings(), DIM), torch.Generator().manual_seed(0)
    server = take_rows(torch.randn(small.data.n_items, DIM, generator=draw), samples)
    theta = merger.draw(task(small.training), stream=1, clients=torch.arange(CLIENTS))
    moves = []
    for rates in ({"user": LR, "block": LR}, {"user": LR, "block": 3 * LR}):
        params = {"user": torch.ones(CLIENTS, DIM), "block": server + 1}
        merger.train_through(
            theta.clone(), server, LossOnly(plain), params, samples, Schedule(1, 10_000),
            [Step(("user", "block"), rates, "sgd")], first=None, through=True,
        )  # fmt: skip
        moves.append((params["user"] - 1, params["block"] - server - 1))
    torch.testing.assert_close(moves[1][0], moves[0][0])
    torch.testing.assert_close(moves[1][1], 3 * moves[0][1], atol=1e-5, rtol=1e-4)


def test_the_dot_product_is_trained_by_the_adapters_own_problem() -> None:
    adapter = Merger(MergeSettings(), DIM).adapter
    assert look_through(adapter, MatrixFactorisation()) is adapter
    other = LossOnly(plain)
    looked = look_through(adapter, other, ("tails",))
    assert isinstance(looked, MergedSamples)
    assert (looked.adapter, looked.problem, looked.row_names) == (adapter, other, ("tails",))
