"""Noise on the sums of a federation: sites add shares of it, and no server ever sees a sum without."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import pytest
from safetensors.torch import load_file
from sites_at_hand import NAMES, plan_of, simulated, sites_of, train

from fedrec.deploy.federation import Federation
from fedrec.deploy.message import Message
from fedrec.deploy.transport import Local, Missing
from fedrec.errors import ConfigError, FedrecError
from fedrec.federation.central_privacy import CentralPrivacy
from fedrec.methods import create

FAST = {"dim": 4, "lr": 0.05, "epochs": 2}
NOISE = CentralPrivacy(epsilon=8.0, clip=0.5)


def plan(demo, noise=NOISE, **more):
    return dataclasses.replace(plan_of(demo), privacy=noise, secure=more.pop("secure", True), **more)


def gathered(demo, folder, noise, transport=None):
    federation = Federation(
        create("fedmf", FAST), plan(demo, noise, rounds=2), transport or Local(sites_of(demo, folder)), print
    )
    federation.gather(list(NAMES))
    return federation


def test_without_noise_the_clipped_sums_are_those_of_the_simulation(demo, tmp_path):
    silent = CentralPrivacy(noise=0.0, clip=0.5)
    train(demo, tmp_path, "fedmf", FAST, plan=plan(demo, silent), rounds=2)
    found = load_file(tmp_path / "run" / "model" / "server.safetensors")["server.items"]
    wanted = simulated(demo, "fedmf", FAST, rounds=2, privacy=silent).trainer.server["items"]
    assert (found - wanted).abs().max() < 1e-4 * wanted.abs().max()
    bare = simulated(demo, "fedmf", FAST | {"agg": "uniform"}, rounds=2).trainer.server["items"]
    assert (bare - wanted).abs().max() > 0.1 * wanted.abs().max(), "clipping does something here"


def test_the_budget_is_in_the_result_and_calibrated_for_the_run(demo, tmp_path):
    result = train(demo, tmp_path, "fedmf", FAST, plan=plan(demo), rounds=3)
    assert result.privacy.epsilon_total == pytest.approx(8.0, rel=1e-3)
    assert result.privacy.most_uploads_of_a_client == 3
    assert result.privacy.noise_multiplier == pytest.approx(
        simulated(demo, "fedmf", FAST, rounds=3, privacy=NOISE).result.privacy.noise_multiplier
    )
    assert "if sums are secure" in result.privacy.verdict


@pytest.mark.parametrize("gone", [False, True])
def test_a_sum_has_at_least_the_whole_noise_also_when_a_site_is_gone(demo, tmp_path, gone):
    """Three sites add half of the variance each, as a majority of them is two."""

    class Two(Local):
        def ask(self, requests, deadline):
            heard = super().ask(requests, deadline)
            return heard | ({"west": Missing("it is gone")} if gone and "west" in requests else {})

    sums = []
    for noise in (CentralPrivacy(noise=0.0), CentralPrivacy(noise=4.0)):
        federation = gathered(demo, tmp_path / f"{gone}{noise.noise}", noise)
        federation.transport = Two(federation.transport.sites)
        chosen = federation.server.participants(0)
        (answer,), names = federation._hidden_answers(federation._training(chosen, 0), chosen, 0, 0)
        assert len(names) == (2 if gone else 3)
        sums.append(answer.content["items"].double())
        assert answer.report["loss"] == 0
    std = float((sums[1] - sums[0]).std())
    expected = 4.0 * (1.0 if gone else 1.5**0.5)
    assert std == pytest.approx(expected, rel=4 / (2 * sums[0].numel()) ** 0.5)


def test_fewer_sites_than_the_noise_needs_are_no_round(demo, tmp_path):
    class One(Local):
        def ask(self, requests, deadline):
            heard = super().ask(requests, deadline)
            started = [name for name, m in requests.items() if Message.decode(m).kind == "train"]
            return heard | {name: Missing("it is gone") for name in started if name != "north"}

    with pytest.raises(FedrecError, match="round 1 failed 3 times"):
        train(demo, tmp_path, "fedmf", FAST, plan=plan(demo), transport=One(sites_of(demo, tmp_path / "s")), rounds=1)


def test_where_fewer_sites_are_ready_than_the_noise_needs_none_is_asked_for_masked_numbers(demo, tmp_path):
    """Two of three are a majority, and too few where the noise is shared among three."""

    class Two(Local):
        kinds: ClassVar[list[str]] = []

        def ask(self, requests, deadline):
            self.kinds.extend(Message.decode(data).kind for data in requests.values())
            heard = super().ask(requests, deadline)
            return heard | ({"west": Missing("it is gone")} if self.kinds[-1] == "train" else {})

    transport = Two(sites_of(demo, tmp_path / "s"))
    wanted = plan(demo, min_sites=3)
    with pytest.raises(FedrecError, match="round 1 failed 3 times"):
        train(demo, tmp_path, "fedmf", FAST, plan=wanted, transport=transport, rounds=1)
    assert "train" in transport.kinds
    assert "masked" not in transport.kinds


def test_sites_insist_on_a_secure_sum_over_enough_of_them(demo, tmp_path):
    federation = gathered(demo, tmp_path, NOISE)
    federation.plan = dataclasses.replace(federation.plan, secure=False)
    chosen = federation.server.participants(0)
    told: list[str] = []
    federation.tell = told.append
    assert federation._answers(federation._training(chosen, 0), chosen, 0, 0) == ([], [])
    assert all("it needs a secure sum" in line for line in told)
    assert len(told) == 3
    assert federation.transport.sites["north"]._open.among == 2


def test_what_makes_no_sense_is_refused_with_the_reason(demo, tmp_path):
    for name, options, settings, words in (
        ("each", {"agg": "both"}, NOISE, "fedem cannot have noise on its sums: its server reads every client's upload"),
        ("bare", FAST, NOISE, "run behind secure aggregation"),
        ("own", {"epsilon": 8.0, "n_max": 20}, None, "fedgram would add its own noise at the server"),
        ("weighs", {"local": "epochs"}, NOISE, "fedsasrec cannot have noise on its sums: its sums weigh a client"),
        ("unbounded", {}, NOISE, "nothing bounds what one client contributes; set n_max"),
    ):
        method = {"each": "fedem", "bare": "fedmf", "weighs": "fedsasrec"}.get(name, "fedgram")
        wanted = plan(demo, settings, secure=name != "bare")
        with pytest.raises(ConfigError, match=words):
            train(demo, tmp_path / name, method, options, plan=wanted)


def test_fedgram_in_one_round_with_noise_from_sites(demo, tmp_path):
    result = train(demo, tmp_path, "fedgram", {"n_max": 20}, plan=plan(demo), rounds=1)
    assert result.privacy.epsilon_total == pytest.approx(8.0, rel=1e-3)
    assert result.test.full["ndcg@10"] > 0.05
    noisy = load_file(tmp_path / "run" / "model" / "server.safetensors")["server.weights"]
    bare = simulated(demo, "fedgram", {"n_max": 20}, rounds=1).trainer.server["weights"]
    assert (noisy - bare).abs().max() > 0.01 * bare.abs().max()
