"""Three sites give what one process gives: to rounding, for a sum method and for one that sees each upload."""

from __future__ import annotations

import json

import pytest
from safetensors.torch import load_file
from sites_at_hand import NAMES, simulated, sites_of, train

from fedrec.deploy.transport import Local

FAST = {"dim": 4, "lr": 0.05, "epochs": 2}
METHODS = [
    ("fedmf", FAST, "sums only"),
    ("fedem", FAST | {"agg": "both"}, "every upload"),
    ("hetefedrec", {"epochs": 1, "sizes": [4, 8, 12], "clients_per_round": 200}, "sums only"),
    ("gpfedrec", {"dim": 4, "epochs": 1, "reg": 0.1}, "every upload"),
]


@pytest.mark.parametrize(("method", "options", "sees"), METHODS, ids=[name for name, *_ in METHODS])
def test_three_sites_equal_the_simulation_to_rounding(demo, tmp_path, method, options, sees):
    found, alone = train(demo, tmp_path, method, options), simulated(demo, method, options)
    assert found.sees == alone.result.sees == sees
    state = load_file(tmp_path / "run" / "model" / "server.safetensors")
    assert found.selected_round == alone.result.selected_round
    wanted = alone.trainer.state()
    if "server.slot" in wanted:  # FedEM: whose table lies where depends on whose came first
        for of in (state, wanted):
            of["server.tables"] = of["server.tables"][of["server.slot"]]
    for name, value in wanted.items():
        if name.startswith("server.") and value.is_floating_point() and value.numel():
            assert (state[name] - value).abs().max() <= 2e-4 * value.abs().max(), name
    for part in ("sampled", "full"):
        for metric, value in getattr(alone.result.test, part).items():
            assert getattr(found.test, part)[metric] == pytest.approx(value, abs=4e-3), metric
    assert found.bytes.down_total == alone.result.bytes.down_total
    assert found.bytes.up_total == alone.result.bytes.up_total
    assert found.users == alone.result.users


def test_losses_and_every_round_agree(demo, tmp_path):
    train(demo, tmp_path, "fedmf", FAST)
    alone = simulated(demo, "fedmf", FAST)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    simulation = [line["loss"] for line in lines]
    assert len(lines) == 3
    assert alone.result.rounds == 3
    assert simulation[0] > simulation[-1]
    assert lines[-1]["validation"]["full"]["ndcg@10"] == pytest.approx(
        alone.result.final.validation.full["ndcg@10"], abs=4e-3
    )


def test_what_a_sum_method_sends_does_not_grow_with_users_and_of_each_it_does(demo, tmp_path):
    wires = []
    for method, options in (("fedmf", FAST), ("fedem", FAST | {"agg": "both"})):
        wires.append(Local(sites_of(demo, tmp_path / method / "sites")))
        train(demo, tmp_path / method, method, options, transport=wires[-1], rounds=1)
    table = demo.n_items * 4 * 4
    for name in NAMES:
        assert wires[0].sent[name] < 8 * table  # a partial sum of values and weights, whoever takes part
        assert wires[1].sent[name] > 150 * table  # a table per user
