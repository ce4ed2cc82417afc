"""The canary: the default protocol stays at chance for ever; the papers' protocol does not."""

import numpy as np
import pytest
import torch

import fedrec
from fedrec.evaluation import audit
from fedrec.sampling.negatives import Sampler


def test_canary_on_demo(demo):
    report = audit([fedrec.Protocol(), "paper"], demo, rounds=(1, 100))["protocols"]
    honest, paper = report["honest"], report["paper"]
    assert honest["leaks"] is False
    assert honest["rounds"]["100"]["sampled"]["hr@10"] == pytest.approx(0.10, abs=0.03)
    assert honest["rounds"]["100"]["full"]["hr@10"] < 0.06
    assert honest["verdict"].startswith("honest")
    assert paper["leaks"] is True
    assert paper["rounds"]["100"]["sampled"]["hr@10"] > 0.95
    assert paper["rounds"]["100"]["full"]["hr@10"] > 0.8
    assert paper["verdict"].startswith("LEAKS")


def test_canary_on_ml_100k(real_data):
    data = fedrec.load("ml-100k", data_dir=str(real_data))
    report = audit(["honest", "paper"], data, rounds=(100,))["protocols"]
    assert report["honest"]["rounds"]["100"]["sampled"]["hr@10"] == pytest.approx(0.10, abs=0.03)
    assert report["paper"]["rounds"]["100"]["sampled"]["hr@10"] >= 0.99


def test_an_own_protocol_can_be_audited(demo):
    mine = fedrec.HONEST.with_options(pool="all")
    report = audit(mine, demo, rounds=(60,))
    assert report["protocols"]["honest*"]["leaks"] is True
    assert report["protocols"]["honest*"]["rounds"]["60"]["sampled"]["hr@10"] > 0.8


def test_held_out_items_are_drawn_at_the_uniform_rate_only_if_honest(honest, paper):
    rounds, found = 40, {}
    for split in (honest, paper):
        sampler, clients = Sampler(split.training), torch.arange(split.data.n_users)
        target = torch.from_numpy(split.test.items.values.astype(np.int64))
        hits = 0
        for number in range(rounds):
            drawn = sampler.draw(clients, negatives=4, seed=0, round=number)
            real = (torch.arange(drawn.items.shape[1]) < drawn.counts[:, None]) & (drawn.labels == 0)
            hits += int(((drawn.items == target[:, None]) & real).sum())
        found[split.protocol.name] = hits
    n = honest.training.positives.counts
    expected = rounds * (4 * n / (honest.data.n_items - n)).sum()
    assert found["paper"] == 0
    assert abs(found["honest"] - expected) < 4 * np.sqrt(expected)
