"""FedMF with merging clients from end to end, against a plain computation: client by client, whole tables, autograd."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits as bce

from fedrec.federation.payload import Payload, Upload, client_bytes
from fedrec.federation.simulation import Simulation
from fedrec.federation.total import Total
from fedrec.federation.trainer import Setup
from fedrec.methods import create
from fedrec.parts.merger import ADAPTER, OWN
from merging_by_hand import DIM, EVERYBODY, HIDDEN, SEED, merged, view_of_four

CASES: dict[str, dict[str, Any]] = {
    "elastic": {},
    "dynamic": {"merge": "dynamic"},
    "dynamic by the mean row": {"merge": "dynamic", "dynamic_pool": "row"},
    "static": {"merge": "static", "rho": 0.3},
    "replace": {"merge": "replace"},
    "none": {"merge": "none"},
}


def federation(**options: Any) -> Simulation:
    settings = {
        "merge": "elastic", "dim": DIM, "adapter_hidden": (HIDDEN,), "adapter_lr": 0.03, "adapter_epochs": 3,
        "epochs": 4, "lr": 0.1, "init_std": 0.7,
    }  # fmt: skip
    return Simulation(create("fedmf", settings | options, protocol="none"), view_of_four(), Setup(seed=SEED))


def trained(leaves: list[Tensor], lr: float, epochs: int, rows_and_user: Any, labels: Tensor) -> list[Tensor]:
    """Adam on the mean loss of all samples."""
    moving = [leaf.clone().requires_grad_() for leaf in leaves]
    optimiser = torch.optim.Adam(moving, lr)
    for _ in range(epochs):
        optimiser.zero_grad()
        rows, user = rows_and_user(*moving)
        bce(rows @ user, labels).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return [leaf.detach() for leaf in moving]


@pytest.mark.parametrize("name", CASES)
def test_every_round_is_what_the_formulas_say(name: str) -> None:
    simulation = federation(**CASES[name])
    c: Any = simulation.method.config
    state = simulation.store.at(EVERYBODY)
    users = list(state["user"].double())
    adapts = c.merge in ("elastic", "dynamic")
    thetas = list(state[ADAPTER].double()) if adapts else [torch.zeros(0)] * 4
    common, own = simulation.server["items"].double(), list[Tensor]()
    for number in range(3):
        before, own = own or [common] * 4, []
        for u in EVERYBODY.tolist():
            drawn = simulation.sampler.draw(torch.tensor([u]), negatives=4, seed=SEED, round=number)
            items, labels = drawn.items[0].long(), drawn.labels[0].double()
            user, local = users[u], before[u]
            if adapts:
                seen = lambda theta, local=local, user=user: (merged(c, theta, local, common, items), user)  # noqa: B023, E731
                (thetas[u],) = trained([thetas[u]], c.adapter_lr, c.adapter_epochs, seen, labels)
            start = merged(c, thetas[u], local, common)
            users[u], table = trained([user, start], c.lr, c.epochs, lambda p, q: (q[items], p), labels)  # noqa: B023
            own.append(table)
        common = common + torch.stack([table - common for table in own]).mean(0)
        simulation.round(number)
        found = simulation.store.at(EVERYBODY)
        close = {"atol": 1e-4, "rtol": 1e-4}
        torch.testing.assert_close(simulation.server["items"].double(), common, **close)
        torch.testing.assert_close(found["user"].double(), torch.stack(users), **close)
        torch.testing.assert_close(found[OWN].double(), torch.stack(own), **close)
        if adapts:
            torch.testing.assert_close(found[ADAPTER].double(), torch.stack(thetas), **close)
        scores = torch.stack([merged(c, thetas[u], own[u], common) @ users[u] for u in EVERYBODY.tolist()])
        torch.testing.assert_close(simulation.scores(EVERYBODY).double(), scores, atol=3e-4, rtol=3e-4)


@pytest.mark.parametrize("name", CASES)
def test_nothing_but_the_change_of_the_table_leaves_a_client(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    simulation, sent = federation(**CASES[name]), list[Payload]()
    contribute = type(simulation.method).contribute

    def watched(self: Any, task: Any, upload: Upload, total: Total) -> None:
        sent.append(upload.parts)
        contribute(self, task, upload, total)

    monkeypatch.setattr(type(simulation.method), "contribute", watched)
    for number in range(2):
        simulation.round(number)
    assert sent
    for parts in sent:
        assert set(parts) == {"items"}
        clients = len(parts["items"])  # type: ignore[arg-type]
        assert client_bytes(parts, clients).tolist() == [12 * DIM * 4] * clients
