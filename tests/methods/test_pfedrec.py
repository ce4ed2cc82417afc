from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

import fedrec
from fedrec.errors import ConfigError
from fedrec.federation.payload import Upload, row_update
from fedrec.federation.simulation import Simulation
from fedrec.methods import create
from fedrec.methods.pfedrec import PFedRec
from fedrec.sampling import streams
from fedrec.testing import MethodSuite

EVERYBODY = torch.arange(40)


class TestPFedRec(MethodSuite):
    method = PFedRec
    options = {"score_table": "global"}
    floor = 0.35


def simulate(split: fedrec.Split, rounds: int, **options: Any) -> Simulation:
    simulation = Simulation(PFedRec(**({"dim": 4, "batch_size": 16} | options)), split.training)
    for number in range(rounds):
        simulation.round(number)
    return simulation


def by_hand(simulation: Simulation, client: int, joint: bool = False) -> tuple[Tensor, Tensor]:
    """Unit and whole table of one client after round 0, by autograd on dense tensors."""
    method, state = simulation.method.config, simulation.store.at(torch.tensor([client]))
    samples = simulation.sampler.draw(torch.tensor([client]), negatives=4, seed=0, round=0)
    unit, table = state["unit"][0].clone().requires_grad_(), simulation.server["items"].clone().requires_grad_()
    rates = method.lr, method.lr * len(table) * method.lr_eta
    order = streams.sorted_orders(0, 0, samples.clients, 0, samples.counts, int(samples.counts[0]))[0]

    def gradients(batch: Tensor) -> tuple[Tensor, ...]:
        logits = table[samples.items[0, batch].long()] @ unit[:-1] + unit[-1]
        return torch.autograd.grad(binary_cross_entropy_with_logits(logits, samples.labels[0, batch]), [unit, table])

    for batch in order.split(method.batch_size):
        first = gradients(batch)
        unit.data -= rates[0] * first[0]
        table.data -= rates[1] * (first if joint else gradients(batch))[1]
    return unit.detach(), table.detach()


def test_local_training_is_the_dense_loop(small: fedrec.Split) -> None:
    simulation = simulate(small, 0, lr=1.0, lr_eta=0.2)
    expected = [by_hand(simulation, client) for client in (3, 11)]
    joint, _ = by_hand(simulation, 3, joint=True)
    simulation.round(0)
    for client, (unit, table) in zip((3, 11), expected, strict=True):
        state = simulation.store.at(torch.tensor([client]))
        torch.testing.assert_close(state["unit"][0], unit, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(state["own"][0], table @ unit[:-1] + unit[-1], atol=1e-4, rtol=1e-4)
    assert (joint - expected[0][0]).abs().max() > 1e-3, "the second step must look again"


def test_untouched_rows_are_the_download_bit_for_bit(small: fedrec.Split) -> None:
    simulation = simulate(small, 1)
    before = simulation.server["items"]
    samples = simulation.sampler.draw(torch.tensor([5]), negatives=4, seed=0, round=1)
    simulation.round(1)
    state = simulation.store.at(torch.tensor([5]))
    untouched = torch.ones(60, dtype=torch.bool)
    untouched[samples.rows[0, : samples.row_counts[0]].long()] = False
    plain = before @ state["unit"][0, :-1] + state["unit"][0, -1]
    assert bool(untouched.any())
    torch.testing.assert_close(state["own"][0, untouched], plain[untouched], atol=1e-6, rtol=1e-6)
    assert (state["own"][0] - plain)[~untouched].abs().min() > 1e-5


def test_aggregation_of_changes_is_the_mean_of_tables(small: fedrec.Split) -> None:
    method = PFedRec(dim=4)
    simulation = Simulation(method, small.training)
    clients = torch.arange(7)
    samples = simulation.sampler.draw(clients, negatives=4, seed=0, round=0)
    payload = method.broadcast(simulation.task, simulation.server, clients)
    parts, _ = method.train(simulation.task, simulation.store.at(clients), payload, samples, 0)
    table = simulation.server["items"]
    expected = (table + row_update(parts, "items").dense()).mean(0)
    gathering = method.gather(simulation.task)
    gathering.add(Upload(clients, samples.positives.float(), parts))
    new = gathering.step(simulation.server, 0)
    torch.testing.assert_close(new["items"], expected, atol=1e-4, rtol=1e-4)


def test_a_single_participant_makes_the_table(small: fedrec.Split) -> None:
    simulation = simulate(small, 1, participation=0.001, lr_eta=2.0)
    same = (simulation.scores(EVERYBODY) - simulation.scores(EVERYBODY, "global")).abs().amax(1) < 1e-4
    assert int(same.sum()) == 1


def test_who_never_took_part_scores_with_the_initial_model(small: fedrec.Split) -> None:
    start = simulate(small, 0)
    simulation = simulate(small, 1, participation=0.1)
    changed = (simulation.scores(EVERYBODY) != start.scores(EVERYBODY)).any(1)
    assert int(changed.sum()) == 4


def test_own_and_global_agree_without_item_steps(small: fedrec.Split) -> None:
    simulation = simulate(small, 2, lr_item=0.0)
    torch.testing.assert_close(simulation.scores(EVERYBODY), simulation.scores(EVERYBODY, "global"))
    swapped = simulate(small, 2, score_table="global")
    assert swapped.views == ("own",)
    assert torch.equal(swapped.scores(EVERYBODY, "own"), simulate(small, 2).scores(EVERYBODY))


def test_merging_by_replacement_is_the_method_itself(small: fedrec.Split) -> None:
    found = []
    for merge in (None, "replace"):
        method = create("pfedrec", merge=merge, dim=4, score_table="global")
        simulation = Simulation(method, small.training)
        for number in range(3):
            simulation.round(number)
        found.append(simulation.scores(EVERYBODY))
    assert (found[0] - found[1]).abs().max() <= 1e-4 * found[0].abs().max()


def test_elastic_merging_scores_with_the_merged_table(small: fedrec.Split) -> None:
    simulation = Simulation(create("pfedrec", merge="elastic", dim=4), small.training)
    for number in range(2):
        simulation.round(number)
    state = simulation.store.at(EVERYBODY)
    scores = simulation.scores(EVERYBODY)
    assert bool(torch.isfinite(scores).all())
    assert (scores - state["own"]).abs().max() > 1e-3


def test_bad_settings() -> None:
    with pytest.raises(ConfigError, match="score_table"):
        PFedRec(score_table="both")
    with pytest.raises(ConfigError, match="optimizer"):
        PFedRec(optimizer="lion")


def test_with_adam_rows_move_at_the_rate_of_the_unit() -> None:
    assert PFedRec(optimizer="adam", lr=0.05).config.item_rate(1682) == 0.05  # type: ignore[attr-defined]
    assert PFedRec(lr=0.1).config.item_rate(1682) == pytest.approx(13456)  # type: ignore[attr-defined]
    assert PFedRec(optimizer="adam", lr_item=0.2).config.item_rate(1682) == 0.2  # type: ignore[attr-defined]
