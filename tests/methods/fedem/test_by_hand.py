"""FedEM from end to end, against a plain computation: client by client, whole tables, autograd, in double precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits as bce

from fedrec.federation.simulation import Simulation
from fedrec.federation.trainer import Setup
from fedrec.methods.fedem import FedEM
from fedrec.parts.merger import ADAPTER
from merging_by_hand import DIM, EVERYBODY, HIDDEN, POSITIVES, SEED, merged, view_of_four


def federation(**options: Any) -> Simulation:
    settings = {"dim": DIM, "adapter_hidden": (HIDDEN,), "epochs": 4, "lr": 0.1, "init_std": 0.7} | options
    return Simulation(FedEM(**settings), view_of_four(), Setup(seed=SEED))


@dataclass
class Client:
    """What one client has."""

    user: Tensor
    items: Tensor
    theta: Tensor
    served: Tensor | None = None
    """The table the server has for it."""


def local_training(c: Any, client: Client, items: Tensor, labels: Tensor) -> None:
    """A client's round; all its samples are one batch."""
    theta, server = client.theta.clone().requires_grad_(), client.served
    adapts = c.merge in ("elastic", "dynamic") and server is not None

    def epochs(most: int, once: Any) -> None:
        losses: list[float] = []
        for epoch in range(most):
            losses.append(once())
            if epoch > 0:
                before, now = float(np.mean(losses[:-1])), float(np.mean(losses))
                if abs(now - before) / abs(before + 1e-5) < c.early_stop_tol:
                    return

    def step(optimiser: torch.optim.Adam, rows: Tensor, user: Tensor) -> float:
        optimiser.zero_grad()
        loss = bce(rows @ user, labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        return float(loss.detach())

    of_theta = torch.optim.Adam([theta], c.adapter_lr or c.lr)
    if adapts and server is not None and c.adapter_schedule == "before":
        own, user_now = client.items, client.user
        epochs(
            c.adapter_epochs or c.epochs,
            lambda: step(of_theta, merged(c, theta, own, server, items), user_now),
        )
    if server is not None:
        client.items = merged(c, theta.detach(), client.items, server)
    user, table = client.user.clone().requires_grad_(), client.items.clone().requires_grad_()
    of_table, of_theta = torch.optim.Adam([user, table], c.lr), torch.optim.Adam([theta], c.adapter_lr or c.lr)

    def once() -> float:
        if adapts and server is not None and c.adapter_schedule == "interleaved":
            step(of_theta, merged(c, theta, table.detach(), server, items), user.detach())
        through = adapts and server is not None and c.train_through_adapter
        rows = merged(c, theta.detach(), table, server, items) if through and server is not None else table[items]
        return step(of_table, rows, user)

    epochs(c.epochs, once)
    client.user, client.items, client.theta = user.detach(), table.detach(), theta.detach()


def similarity(c: Any, left: Tensor, right: Tensor) -> float:
    """sigma of two clients' tables."""

    def feature(table: Tensor) -> Tensor:
        if c.similarity == "table":
            return table.flatten()
        centred = table - table.mean(0)
        first = torch.linalg.svd(centred)[2][0]
        return centred @ (first * first[first.abs().argmax()].sign())

    a, b = feature(left), feature(right)
    if c.similarity == "cosine":
        return max(0.0, float(a @ b / a.norm() / b.norm()))
    distance = float((a - b).norm())
    value = 1 / (1 + (distance**2 if c.distance == "squared" else distance))
    return 1.0 if c.sim_snap is not None and value > c.sim_snap else value


def on_the_simplex(point: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The nearest weights that are not negative and sum to 1: max(point - t, 0), with t by bisection."""
    low, high = point.min() - 1, point.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(point - middle, 0).sum() > 1 else (low, middle)
    return np.maximum(point - high, 0)


def serve(c: Any, clients: list[Client], who: list[int]) -> None:
    """Every client that sent its table gets its own mean of those tables (Eq. 13); all others get nothing."""
    share = np.array([len(POSITIVES[u]) for u in who]) / sum(len(POSITIVES[u]) for u in who)
    tables = {u: clients[u].items.clone() for u in who}
    for client in clients:
        client.served = None
    for u in who:
        sigma = np.array([1.0 if v == u else similarity(c, tables[u], tables[v]) for v in who])
        if c.agg == "mean":
            weights = share
        elif c.agg == "similarity":
            weights = sigma / sigma.sum()
        else:
            weights = on_the_simplex((share + c.alpha * sigma) / (1 + c.alpha if c.weights == "scaled" else 1))
        clients[u].served = sum(w * tables[v] for w, v in zip(weights.tolist(), who, strict=True))  # type: ignore[assignment]


def play(simulation: Simulation, rounds: int = 3) -> None:
    """Run both and compare everything after every round."""
    c: Any = simulation.method.config
    state = {name: simulation.store.at(EVERYBODY)[name].double() for name in simulation.store.tensors}
    none = torch.zeros(len(EVERYBODY), 0)
    clients = [Client(*start) for start in zip(state["user"], state["items"], state.get(ADAPTER, none), strict=True)]
    for number in range(rounds):
        sends = [] if c.merge == "none" else simulation.server["uploads"].nonzero()[:, 0].tolist()
        for u, client in enumerate(clients):
            drawn = simulation.sampler.draw(torch.tensor([u]), negatives=4, seed=SEED, round=number)
            local_training(c, client, drawn.items[0].long(), drawn.labels[0].double())
        serve(c, clients, sends)
        simulation.round(number)
        now = simulation.store.at(EVERYBODY)
        for u, client in enumerate(clients):
            torch.testing.assert_close(now["items"][u].double(), client.items, atol=1e-4, rtol=1e-4)
            torch.testing.assert_close(now["user"][u].double(), client.user, atol=1e-4, rtol=1e-4)
            table = client.items if client.served is None else merged(c, client.theta, client.items, client.served)
            found = simulation.scores(torch.tensor([u]))[0].double()
            torch.testing.assert_close(found, table @ client.user, atol=3e-4, rtol=3e-4)


CODE = {"variant": "code", "pca_sign": "fixed"}
"""The released code leaves the sign of a component to the linear algebra library, which a calculation by hand cannot know."""
CASES: dict[str, dict[str, Any]] = {
    "as the paper": {},
    "as the code, all": CODE | {"agg_ratio": 1.0},
    "as the code, half": CODE | {"agg_ratio": 0.5},
    "replace": {"merge": "replace"},
    "static": {"merge": "static", "rho": 0.3},
    "dynamic": {"merge": "dynamic"},
    "dynamic by the mean row": {"merge": "dynamic", "dynamic_pool": "row"},
    "none": {"merge": "none"},
    "data weights": {"agg": "mean"},
    "data weights of half": {"agg": "mean", "agg_ratio": 0.5},
    "similarities alone": {"agg": "similarity"},
    "cosines": {"agg": "similarity", "similarity": "cosine"},
    "little similarity": {"alpha": 0.05},
    "much similarity": {"alpha": 4.0, "distance": "plain"},
    "unscaled weights": {"weights": "unscaled", "alpha": 0.4},
    "principal components": {"similarity": "pca1"},
    "plain distance": {"similarity": "pca1", "distance": "plain"},
    "snapped": {"similarity": "pca1", "distance": "plain", "sim_snap": 0.2, "agg": "similarity"},
    "adapters of their own pace": {"adapter_lr": 0.03, "adapter_epochs": 2},
    "interleaved": {"adapter_schedule": "interleaved", "adapter_lr": 0.03},
    "through the adapter": {"train_through_adapter": True},
    "early stop": {"epochs": 12, "early_stop_tol": 0.03},
    "early stop of the code": CODE | {"agg_ratio": 1.0, "epochs": 12, "early_stop_tol": 0.03},
    "each its own start": {"common_init": False},
}


@pytest.mark.parametrize("name", CASES)
def test_every_round_is_what_the_formulas_say(name: str) -> None:
    play(federation(**CASES[name]))


@pytest.mark.parametrize("case", [{}, {"variant": "code", "agg_ratio": 1.0}])
def test_early_stop_is_early(case: dict[str, Any]) -> None:
    found = []
    for tol in (0.0, 0.03):
        simulation = federation(epochs=12, early_stop_tol=tol, **case)
        simulation.round(0)
        found.append(simulation.store.at(EVERYBODY)["items"])
    stopped = (found[0] - found[1]).abs().amax((1, 2)) > 0.01
    assert 0 < int(stopped.sum()) < len(EVERYBODY), "some clients stop, each for itself"


def test_a_common_start_is_common_and_others_are_not() -> None:
    common, own = federation(), federation(common_init=False)
    for name in ("user", ADAPTER):
        same, different = common.store.at(EVERYBODY)[name], own.store.at(EVERYBODY)[name]
        assert torch.equal(same, same[:1].expand_as(same))
        assert len(torch.unique(different, dim=0)) == len(EVERYBODY)


def test_the_sign_of_a_component_is_fixed_only_on_demand() -> None:
    served = []
    for sign in ("fixed", "raw"):
        simulation = federation(similarity="pca1", distance="plain", agg="similarity", pca_sign=sign)
        simulation.round(0)
        served.append(simulation.server["tables"])
    assert (served[0] - served[1]).abs().max() > 0.01
