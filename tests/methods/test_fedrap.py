from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

import fedrec
from fedrec.errors import ConfigError
from fedrec.federation.payload import Upload, client_bytes
from fedrec.federation.privacy import Privacy, PrivacyStage
from fedrec.federation.simulation import Simulation
from fedrec.federation.trainer import Setup
from fedrec.methods import create, fedrap
from fedrec.methods.fedrap import FedRAP, ShrunkTable
from fedrec.parts.linear import unit_logits
from fedrec.sampling import streams
from fedrec.testing import MethodSuite

EVERYBODY = torch.arange(40)
SMALL: dict[str, Any] = {"dim": 4, "epochs": 3, "batch_size": 30, "lr_args": 20.0, "l2": 1e-3, "early_stop_tol": 0.0}


class TestFedRAP(MethodSuite):
    method = FedRAP
    options = {"init_std": 0.1, "lr_args": 200.0, "l2": 4e-3, "epochs": 2, "lam": 0.01, "mu": 0.01}
    rounds = 4
    floor = 0.22


def simulate(split: fedrec.Split, rounds: int, privacy: Privacy | None = None, **options: Any) -> Simulation:
    stage = None if privacy is None else PrivacyStage(privacy, 0)
    simulation = Simulation(FedRAP(**(SMALL | options)), split.training, Setup(privacy=stage))
    for number in range(rounds):
        simulation.round(number)
    return simulation


def upload(simulation: Simulation, clients: Tensor, round: int) -> tuple[Any, Any]:
    method, task = simulation.method, simulation.task
    payload = method.broadcast(task, simulation.server, clients)
    samples = simulation.sampler.draw(clients, negatives=4, seed=0, round=round)
    parts, _ = method.train(task, simulation.store.at(clients), payload, samples, round)
    return samples, parts


def by_hand(simulation: Simulation, client: int, round: int) -> tuple[Tensor, Tensor, Tensor]:
    """Unit, D and C of one client after a round: torch's SGD with weight decay on dense tables."""
    c, who = simulation.method.config, torch.tensor([client])
    state, samples = simulation.store.at(who), simulation.sampler.draw(who, negatives=4, seed=0, round=round)
    unit = state["unit"][0].clone().requires_grad_()
    own = (state["personal"] * state["scale"][:, None, None])[0].clone().requires_grad_()
    common = simulation.server["items"].clone().requires_grad_()
    now = c.decay_rate**round
    groups = [{"params": [unit], "lr": c.lr * now}, {"params": [own, common], "lr": c.lr_args * now}]
    optimiser = torch.optim.SGD(groups, weight_decay=c.l2)
    for epoch in range(c.epochs):
        order = streams.sorted_orders(0, round, who, epoch, samples.counts, int(samples.counts[0]))[0]
        for batch in order.split(c.batch_size):
            items = samples.items[0, batch].long()
            d, e = own[items], common[items]
            loss = binary_cross_entropy_with_logits((d + e) @ unit[:-1] + unit[-1], samples.labels[0, batch])
            loss = loss - c.lam * (d - e).square().mean() + c.mu * e.abs().mean()
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            for group in optimiser.param_groups:
                group["lr"] *= c.step_decay
    return unit.detach(), own.detach(), common.detach()


def test_local_training_is_the_dense_loop(small: fedrec.Split) -> None:
    simulation = simulate(small, 1)
    clients = torch.tensor([3, 11])
    expected = [by_hand(simulation, int(client), 1) for client in clients]
    table = simulation.server["items"]
    _, parts = upload(simulation, clients, 1)
    state = simulation.store.at(clients)
    for place, (unit, own, common) in enumerate(expected):
        torch.testing.assert_close(state["unit"][place], unit, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(state["personal"][place] * state["scale"][place], own, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(table + parts["items"].dense()[place], common, atol=1e-4, rtol=1e-4)


def test_untouched_rows_shrink_by_one_factor(small: fedrec.Split) -> None:
    simulation = simulate(small, 0)
    before = simulation.store.at(EVERYBODY)["personal"].clone()
    samples, parts = upload(simulation, EVERYBODY, 0)
    state = simulation.store.at(EVERYBODY)
    steps = 3 * -(-samples.counts // 30)
    assert len(steps.unique()) > 2
    for c in (0, 17, 39):
        factor = 1.0
        for step in range(int(steps[c])):
            factor *= 1 - 20 * 0.95**step * 1e-3
        assert float(parts["items"].factor[c]) == pytest.approx(factor, rel=1e-5)
        assert float(state["scale"][c]) == pytest.approx(factor, rel=1e-5)
        untouched = torch.ones(60, dtype=torch.bool)
        untouched[samples.rows[c, : samples.row_counts[c]].long()] = False
        assert torch.equal(state["personal"][c, untouched], before[c, untouched])


def test_factored_aggregation_is_the_dense_mean(small: fedrec.Split) -> None:
    simulation = simulate(small, 1)
    method, server = simulation.method, simulation.server
    samples, parts = upload(simulation, EVERYBODY, 1)
    assert isinstance(parts["items"], ShrunkTable)
    gathering = method.gather(simulation.task)
    gathering.add(Upload(EVERYBODY, samples.positives.float(), parts))
    new = gathering.step(server, 1)
    torch.testing.assert_close(new["items"], (server["items"] + parts["items"].dense()).mean(0), atol=1e-6, rtol=1e-5)
    assert int(client_bytes(parts, 40).sum()) == int(samples.row_counts.sum()) * (4 * 4 + 4) + 40 * 4


def test_a_stage_without_noise_changes_nothing(small: fedrec.Split) -> None:
    plain, staged = simulate(small, 2), simulate(small, 2, Privacy(clip=None, scale=0))
    torch.testing.assert_close(plain.scores(EVERYBODY), staged.scores(EVERYBODY), atol=1e-4, rtol=1e-4)


def test_a_tiny_scale_is_worked_into_the_table(small: fedrec.Split, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = simulate(small, 3)
    monkeypatch.setattr(fedrap, "SMALLEST", 0.9)
    folded = simulate(small, 3)
    assert bool((folded.store.tensors["scale"] == 1).any())
    torch.testing.assert_close(plain.scores(EVERYBODY), folded.scores(EVERYBODY), atol=1e-3, rtol=1e-3)


def test_tanh_curriculum_starts_with_pure_cross_entropy(small: fedrec.Split) -> None:
    pure, tanh = simulate(small, 1, lam=0.0, mu=0.0), simulate(small, 1, curriculum="tanh")
    assert torch.equal(pure.scores(EVERYBODY), tanh.scores(EVERYBODY))
    for simulation in (pure, tanh):
        simulation.round(1)
    assert not torch.equal(pure.scores(EVERYBODY), tanh.scores(EVERYBODY))


def test_curricula() -> None:
    values = {name: [rule(t) for t in range(12)] for name, rule in fedrap.CURRICULA.items()}
    assert values["constant"] == [1.0] * 12
    assert values["square"][:11] == [0.0] * 5 + [1.0] * 5 + [0.0]
    assert values["frac"][3] == 0.25
    assert values["tanh"][10] == pytest.approx(0.76159, abs=1e-5)
    assert values["sin"][0] == 0.5


def test_without_a_personal_table_it_scores_like_pfedrec(small: fedrec.Split) -> None:
    simulation = simulate(small, 1)
    simulation.store.tensors["personal"].zero_()
    state = simulation.store.at(EVERYBODY)
    table = simulation.server["items"].expand(40, -1, -1)
    torch.testing.assert_close(simulation.scores(EVERYBODY), unit_logits(state["unit"], table))


def test_soft_threshold_makes_the_common_table_sparse(small: fedrec.Split) -> None:
    dense, sparse = simulate(small, 3), simulate(small, 3, soft_threshold=0.5)
    share = [s.diagnostics()["common_table_zero_share"] for s in (dense, sparse)]
    assert share[0] < 0.01
    assert share[1] > 0.1


@pytest.mark.parametrize("options", [{"norm": "l2"}, {"norm": "none"}, {"bias": False}, {"early_stop_tol": 0.2}])
def test_options_change_the_result(small: fedrec.Split, options: dict[str, Any]) -> None:
    first, second = simulate(small, 2), simulate(small, 2, **options)
    assert not torch.equal(first.scores(EVERYBODY), second.scores(EVERYBODY))


def test_merging_by_replacement_is_the_method_itself(small: fedrec.Split) -> None:
    found = []
    for merge in (None, "replace", "elastic", "dynamic"):
        short = {"adapter_epochs": 2} if merge else {}
        simulation = Simulation(create("fedrap", merge=merge, **short, **SMALL), small.training)
        for number in range(3):
            simulation.round(number)
        found.append(simulation.scores(EVERYBODY))
    torch.testing.assert_close(found[0], found[1], atol=1e-3, rtol=1e-3)
    assert all((found[0] - other).abs().max() > 1e-2 for other in found[2:])


def test_bad_settings() -> None:
    with pytest.raises(ConfigError, match="weight decay takes everything"):
        FedRAP(lr_args=1000.0, l2=0.01)
    with pytest.raises(ConfigError, match="curriculum"):
        FedRAP(curriculum="linear")
