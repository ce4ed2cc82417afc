"""Merging as a client does it: an adapter is trained through what merging looks at."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits as bce

import fedrec
from fedrec.data.training import TrainingView
from fedrec.federation.task import Task
from fedrec.local.fit import Schedule, take_rows
from fedrec.local.problem import LossOnly
from fedrec.parts.merger import MergedBlock, Merger, MergeSettings
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
