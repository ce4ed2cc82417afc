"""Merging as FedEM's released engine does it, in other methods: who is aggregated and served, and what the others keep."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fedrec
from fedrec.errors import ConfigError
from fedrec.federation.simulation import Simulation
from fedrec.federation.trainer import Setup
from fedrec.methods import create
from fedrec.methods.fedmf import FedMF
from fedrec.parts import merged_method
from fedrec.parts.merged_method import KEPT, merged
from fedrec.parts.merger import ADAPTER, OWN

EVERYBODY = torch.arange(40)
MODEL: dict[str, Any] = {"dim": 4, "epochs": 2, "lr": 0.1, "init_std": 1.0, "common_init": True}
ENGINE: dict[str, Any] = {"merge": "elastic", "merge_variant": "code", "agg_ratio": 0.3}
NETWORK: dict[str, Any] = {"variant": "mlp", "dim": 4, "epochs": 1, "init_std": 1.0}


def simulate(split: fedrec.Split, rounds: int, name: str, **options: Any) -> Simulation:
    simulation = Simulation(create(name, options, protocol="none"), split.training, Setup(seed=3))
    for number in range(rounds):
        simulation.round(number)
    return simulation


@pytest.mark.parametrize("schedule", ["interleaved", "before"])
@pytest.mark.parametrize("ratio", [0.3, 1.0])
def test_fedmf_in_the_engine_is_fedem_with_plain_means(
    small: fedrec.Split, monkeypatch: pytest.MonkeyPatch, ratio: float, schedule: str
) -> None:
    monkeypatch.setattr(merged_method, "STREAM", 1)  # FedEM's, of the initial adapters
    engine = {"agg_ratio": ratio, "adapter_schedule": schedule, "adapter_epochs": 3}
    if schedule == "before":  # FedEM's phase of adapters may stop early, too; the plug-in's does not
        engine["early_stop_tol"] = 0.0
    ours = simulate(small, 0, "fedmf", agg="size", **(ENGINE | MODEL | engine))
    fedem = simulate(small, 0, "fedem", variant="code", agg="mean", **MODEL, **engine)
    for number in range(4):
        left, right = ours.round(number), fedem.round(number)
        assert left.loss == pytest.approx(right.loss, rel=1e-5)
        assert (left.bytes_up, left.bytes_down) == (right.bytes_up, right.bytes_down)
        torch.testing.assert_close(ours.scores(EVERYBODY), fedem.scores(EVERYBODY), atol=2e-3, rtol=1e-3)
        tables = ours.store.at(EVERYBODY)[OWN], fedem.store.at(EVERYBODY)["items"]
        torch.testing.assert_close(*tables, atol=1e-3, rtol=1e-3)
    assert torch.equal(ours.server["uploads"], fedem.server["uploads"])


def test_who_is_not_served_goes_on_alone(small: fedrec.Split) -> None:
    simulation = simulate(small, 2, "fedmf", **ENGINE, **MODEL)
    served = simulation.server["served"].clone()
    assert int(served.sum()) == 12
    before = simulation.store.at(EVERYBODY)[ADAPTER].clone()
    alone = simulate(small, 2, "fedmf", **ENGINE, **MODEL)
    alone.server["items"] += 5.0  # what the server has reaches the served ones only
    for run in (simulation, alone):
        run.round(2)
    same = (simulation.store.at(EVERYBODY)[OWN] == alone.store.at(EVERYBODY)[OWN]).flatten(1).all(1)
    assert torch.equal(same, ~served)
    moved = (simulation.store.at(EVERYBODY)[ADAPTER] != before).any(1)
    assert torch.equal(moved, served), "adapters learn where there is something to merge"


def test_who_uploads_is_a_share_of_those_who_take_part_in_that_round(small: fedrec.Split) -> None:
    simulation = simulate(small, 0, "fedmf", **ENGINE, **MODEL, participation=0.5)
    seen = []
    for number in range(3):
        uploads = set(simulation.server["uploads"].nonzero()[:, 0].tolist())
        part = set(simulation.method.participants(simulation.task, simulation.server, number).tolist())  # type: ignore[attr-defined]
        assert (len(part), len(uploads)) == (20, 6)
        assert uploads <= part
        simulation.round(number)
        assert set(simulation.server["served"].nonzero()[:, 0].tolist()) == uploads
        seen.append(uploads)
    assert seen[0] != seen[1] != seen[2]


def test_the_server_has_the_mean_of_the_tables_of_those_who_sent_theirs(small: fedrec.Split) -> None:
    for name, options in (("fedmf", MODEL | {"agg": "size"}), ("pfedrec", {"dim": 4})):
        simulation = simulate(small, 2, name, **ENGINE, **options)
        who = simulation.server["uploads"].nonzero()[:, 0]
        report = simulation.round(2)
        tables = simulation.store.at(who)[OWN].double()
        weight = simulation.task.counts[who].double() if name == "fedmf" else torch.ones(len(who)).double()
        mean = (tables * weight[:, None, None]).sum(0) / weight.sum()
        torch.testing.assert_close(simulation.server["items"].double(), mean, atol=1e-5, rtol=1e-5)
        assert simulation.server["served"].nonzero()[:, 0].tolist() == who.tolist()
        assert report.bytes_up == len(who) * tables[0].numel() * 4


def test_scores_are_of_the_merged_table_where_there_is_one(small: fedrec.Split) -> None:
    found = {score: simulate(small, 3, "fedmf", **ENGINE, **MODEL, score=score) for score in ("merged", "own")}
    served = found["own"].server["served"]
    state = found["own"].store.at(EVERYBODY)
    own = (state[OWN] @ state["user"][:, :, None]).squeeze(2)
    torch.testing.assert_close(found["own"].scores(EVERYBODY), own)
    merged_scores = found["merged"].scores(EVERYBODY)
    torch.testing.assert_close(merged_scores[~served], own[~served])
    assert ((merged_scores - own).abs().amax(1) > 1e-3).equal(served)


def test_in_the_papers_way_own_is_the_table_as_trained(small: fedrec.Split) -> None:
    """PFedRec's own row scores so, too."""
    simulation = simulate(small, 2, "pfedrec", merge="elastic", dim=4, score="own")
    scores, state = simulation.scores(EVERYBODY), simulation.store.at(EVERYBODY)
    torch.testing.assert_close(scores, state["own"], atol=1e-3, rtol=1e-4)
    merged_scores = simulate(small, 2, "pfedrec", merge="elastic", dim=4).scores(EVERYBODY)
    assert (merged_scores - state["own"]).abs().max() > 0.1


@pytest.mark.parametrize("options", [{}, {"agg_ratio": 1.0}, {"merge_variant": "paper", "agg_ratio": 1.0}])
def test_a_network_can_stay_with_each_client(small: fedrec.Split, options: dict[str, Any]) -> None:
    simulation = simulate(small, 0, "fedncf", **(ENGINE | NETWORK | options), keep_shared=True)
    start = simulation.server["network"].clone()
    reports = [simulation.round(number) for number in range(2)]
    assert torch.equal(simulation.server["network"], start), "nobody sends it"
    own = simulation.store.at(EVERYBODY)[KEPT + "network"]
    assert len(torch.unique(own, dim=0)) == 40
    sent = simulation.server["uploads"].float().mean() if "uploads" in simulation.server else 1.0
    assert reports[1].bytes_up == pytest.approx(40 * float(sent) * 60 * 4 * 4)


def test_a_network_is_replaced_where_a_client_is_served(small: fedrec.Split) -> None:
    simulation = simulate(small, 2, "fedncf", **ENGINE, **NETWORK)
    who = simulation.server["uploads"].nonzero()[:, 0]
    simulation.round(2)
    sent = simulation.store.at(who)[KEPT + "network"].double()
    share = simulation.task.counts[who].double()
    mean = (share[:, None] * sent).sum(0) / share.sum()
    torch.testing.assert_close(simulation.server["network"].double(), mean, atol=1e-5, rtol=1e-5)
    served, rest = simulation.server["served"], ~simulation.server["served"]
    before = simulation.scores(EVERYBODY).clone()
    simulation.server["network"] += 0.5
    changed = (simulation.scores(EVERYBODY) != before).any(1)
    assert bool(changed[served].all())
    assert not bool(changed[rest].any())


def test_every_first_table_is_the_common_one(small: fedrec.Split) -> None:
    for name in ("fedmf", "fedncf", "pfedrec", "gpfedrec", "fedrap"):
        few = {"dim": 4} | ({"lr_eta": 4.0} if name == "gpfedrec" else {})
        simulation = simulate(small, 0, name, **ENGINE, **few)
        first = simulation.server["items"].expand(40, -1, -1)
        assert torch.equal(simulation.store.at(EVERYBODY)[OWN], first)
        plain = Simulation(create(name, few, protocol="none"), small.training, Setup(seed=3))
        torch.testing.assert_close(simulation.scores(EVERYBODY), plain.scores(EVERYBODY), atol=1e-4, rtol=1e-4)


def test_full_weight_is_replacement(small: fedrec.Split) -> None:
    """All clients are aggregated, and all of the download is taken."""
    found = [
        simulate(small, 3, "fedmf", merge=merge, rho=1.0, agg="size", agg_ratio=0.999, **MODEL)
        for merge in ("static", "replace")
    ]
    torch.testing.assert_close(found[0].scores(EVERYBODY), found[1].scores(EVERYBODY), atol=1e-4, rtol=1e-4)


def test_own_options_of_the_papers_way_are_todays_plug_in(small: fedrec.Split) -> None:
    spelt = {
        "merge_variant": "code", "agg_ratio": 1.0, "adapter_schedule": "before", "train_through_adapter": False,
        "early_stop_tol": 0.0,
    }  # fmt: skip
    for name in ("fedmf", "pfedrec"):
        left, right = (simulate(small, 3, name, merge="elastic", dim=4, **more) for more in ({}, spelt))
        assert torch.equal(left.scores(EVERYBODY), right.scores(EVERYBODY))


def test_early_stop_is_the_engines(small: fedrec.Split) -> None:
    long = {**ENGINE, **MODEL, "epochs": 12}
    found = [simulate(small, 1, "fedmf", **(long | {"early_stop_tol": tol})) for tol in (0.0, 0.05)]
    stopped = (found[0].store.at(EVERYBODY)[OWN] - found[1].store.at(EVERYBODY)[OWN]).abs().amax((1, 2)) > 0.01
    assert int(stopped.sum()) > 0


def test_adapters_can_leave_fedraps_penalties_out(small: fedrec.Split) -> None:
    for variant in ("paper", "code"):
        runs = {
            loss: simulate(
                small, 3, "fedrap", merge="elastic", merge_variant=variant, agg_ratio=1.0, dim=4, lam=lam, adapter_loss=loss,
                adapter_epochs=2, epochs=2,
            )
            for loss, lam in (("method", 0.1), ("data", 0.1))
        }  # fmt: skip
        adapters = [run.store.at(EVERYBODY)[ADAPTER] for run in runs.values()]
        assert (adapters[0] - adapters[1]).abs().max() > 1e-3
    plain = [
        simulate(small, 2, "fedrap", merge="elastic", dim=4, lam=0.0, mu=0.0, adapter_loss=loss, adapter_epochs=2)
        for loss in ("method", "data")
    ]
    torch.testing.assert_close(plain[0].scores(EVERYBODY), plain[1].scores(EVERYBODY), atol=1e-4, rtol=1e-4)


def test_gpfedrec_guides_only_whom_it_serves(small: fedrec.Split) -> None:
    runs = [
        simulate(small, 3, "gpfedrec", **ENGINE, dim=4, lr_eta=4.0, reg=reg, gamma=0.5) for reg in (0.0, 2.0)
    ]  # fmt: skip
    first = [simulate(small, 1, "gpfedrec", **ENGINE, dim=4, lr_eta=4.0, reg=reg, gamma=0.5) for reg in (0.0, 2.0)]
    same = [a.store.at(EVERYBODY)[OWN] - b.store.at(EVERYBODY)[OWN] for a, b in (first, runs)]
    assert float(same[0].abs().max()) == 0, "nobody is served in the first round"
    assert float(same[1].abs().max()) > 1e-3
    for view in runs[0].views:
        assert bool(torch.isfinite(runs[0].scores(EVERYBODY, view)).all())


def test_the_share_of_the_server_is_reported(small: fedrec.Split) -> None:
    found = simulate(small, 3, "fedmf", **ENGINE, **MODEL).diagnostics()["server_share"]
    assert found["clients"] == 12
    quantiles = list(found["quantiles"].values())
    assert quantiles == sorted(quantiles)
    assert 0 < found["mean"] < 1
    half = simulate(small, 2, "fedmf", merge="static", rho=0.25, **MODEL).diagnostics()["server_share"]
    assert half["clients"] == 40
    assert half["mean"] == pytest.approx(0.25)
    assert list(half["quantiles"].values()) == pytest.approx([0.25] * 5, abs=1e-3)
    nothing = simulate(small, 1, "fedmf", merge="none", **MODEL).diagnostics()["server_share"]
    assert nothing == {"clients": 0}


def test_methods_whose_server_holds_clients_vectors_are_refused(small: fedrec.Split) -> None:
    method = create("fedfast", {**ENGINE, "clusters": 3, "first_clusters": "random"}, protocol="none")
    with pytest.raises(ConfigError, match=r"cannot keep what the server holds for each of them \(user\)"):
        Simulation(method, small.training)


class Lacking(FedMF):
    """A method whose server has none of what it says is shared."""

    name = "lacking"
    shared_names = ("units", "bias", "layers")


def test_all_that_the_server_has_for_each_client_is_named_in_order(small: fedrec.Split) -> None:
    with pytest.raises(ConfigError, match=r"for each of them \(bias, layers, units\); set merge_variant=paper"):
        Simulation(merged(Lacking)(merge="elastic", merge_variant="code"), small.training)


def test_tables_tell_the_sets_apart() -> None:
    assert create("fedmf", merge="elastic", merge_variant="code").label == "fedmf+elastic merge_variant=code"
    assert create("fedmf", merge="elastic").label == "fedmf+elastic"


class OwnWay(FedMF):
    """A method that trains as it likes."""

    name = "own-way"

    def train(self, *given: Any) -> Any:
        return super().train(*given)


def test_training_of_ones_own_cannot_look_through_adapters(small: fedrec.Split) -> None:
    with pytest.raises(ConfigError, match="cannot look through adapters; give it train_by"):
        merged(OwnWay)(merge="elastic", merge_variant="code")
    simulation = Simulation(merged(OwnWay)(merge="elastic", epochs=1), small.training, Setup(seed=3))
    same = Simulation(merged(FedMF)(merge="elastic", epochs=1), small.training, Setup(seed=3))
    for run in (simulation, same):
        run.round(0)
    assert torch.equal(simulation.scores(EVERYBODY), same.scores(EVERYBODY))


def test_a_pull_that_resets_every_row_is_said_in_a_sentence() -> None:
    (said,) = create("gpfedrec", {"dim": 16}).cautions(1682)
    assert "kappa = 2 reg lr lr_eta / dim = 1)" in said
    assert "reg = gamma = 0.5" in said
    assert create("gpfedrec", {"dim": 16, "reg": 0.5}).cautions(1682) == []
    assert create("gpfedrec", {"dim": 16, "optimizer": "adam"}).cautions(1682) == []
    assert create("fedmf").cautions(1682) == []
