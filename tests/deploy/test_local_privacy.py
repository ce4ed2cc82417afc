"""Local differential privacy in a federation: clients clip and noise at their site, with secrets nobody else has."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from safetensors.torch import load_file
from sites_at_hand import NAMES, plan_of, simulated, sites_of, train

from fedrec.deploy.site_store import SiteStore
from fedrec.federation.privacy import Privacy, PrivacyStage

FAST = {"dim": 4, "lr": 0.05, "epochs": 2}
NOISE = Privacy(clip=1.0, scale=0.05)


def run(demo, folder, privacy, **more):
    plan = dataclasses.replace(plan_of(demo), privacy=privacy)
    result = train(demo, folder, "fedmf", FAST, plan=plan, rounds=2, **more)
    return result, load_file(folder / "run" / "model" / "server.safetensors")["server.items"]


def test_noise_from_the_seed_is_that_of_the_simulation(demo, tmp_path):
    privacy = NOISE.model_copy(update={"reproducible": True})
    _, found = run(demo, tmp_path, privacy)
    wanted = simulated(demo, "fedmf", FAST, rounds=2, privacy=privacy).trainer.server["items"]
    assert (found - wanted).abs().max() < 1e-4 * wanted.abs().max()


def test_noise_is_secret_and_its_cost_is_told(demo, tmp_path):
    (one, first), (two, second) = (run(demo, tmp_path / name, NOISE) for name in "ab")
    assert not torch.equal(first, second)
    assert one.privacy.epsilon_total == pytest.approx(PrivacyStage(NOISE, 0).epsilon(2))
    for found in (one, two):  # whichever round is selected, both were sent
        assert found.privacy.most_uploads_of_a_client == 2
    names = {path.name for path in (tmp_path / "a" / "run").rglob("*.safetensors")}
    assert names == {"server.safetensors"}


def test_a_site_that_restarts_sends_the_same_noise_again(demo, tmp_path):
    from fedrec.deploy.federation import Federation
    from fedrec.deploy.transport import Local
    from fedrec.methods import create

    plan = dataclasses.replace(plan_of(demo), privacy=NOISE)
    federation = Federation(create("fedmf", FAST), plan, Local(sites_of(demo, tmp_path)), print)
    federation.gather(list(NAMES))
    sums = []
    for _ in range(2):
        federation.transport = Local(sites_of(demo, tmp_path))
        chosen = federation.server.participants(0)
        answers, _ = federation._answers(federation._training(chosen, 0), chosen, 0, 0)
        sums.append(answers[0].content["items"])
    assert torch.equal(*sums)


def test_a_run_that_goes_on_keeps_its_sites_secrets_and_their_state(demo, tmp_path):
    """A second secret would be a second noise on the same numbers, and private state would begin again."""
    from test_run import Gone

    def held():
        found = SiteStore(tmp_path / "sites" / "north", "run").state(99)
        assert found is not None
        return found[0], found[1]["secret.noise"]

    plan, found = dataclasses.replace(plan_of(demo), privacy=NOISE), []
    for stops, resume in ((9, False), (3, True)):  # before round 4 is asked for, both times
        transport = Gone(sites_of(demo, tmp_path / "sites"), stops=stops)
        with pytest.raises(KeyboardInterrupt):
            train(demo, tmp_path, "fedmf", FAST, transport=transport, resume=resume, plan=plan, rounds=4)
        found.append(held())
    assert [number for number, _ in found] == [3, 3]
    assert torch.equal(found[0][1], found[1][1])
