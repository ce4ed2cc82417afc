"""Noise on sums: clipping, its law, what it costs, and that a run is told of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

import fedrec
from fedrec.errors import ConfigError
from fedrec.federation.accounting import Sampling, gaussian_epsilon, sampled_epsilon
from fedrec.federation.central_privacy import CentralPrivacy, CentralStage, most_uploads
from fedrec.federation.payload import RowUpdate, Table
from fedrec.federation.task import Task
from fedrec.federation.total import Total
from fedrec.methods import create

FAST = {"dim": 4, "epochs": 1}


def stage(noise=1.0, clip=1.0, share=1.0, seed=0, **more):
    made = CentralStage(CentralPrivacy(noise=noise, clip=clip, **more), seed, share)
    made.meet(create("fedmf"), Task(3, 6, torch.ones(3, dtype=torch.int64), 0, torch.device("cpu")))
    return made


def test_clipping_is_of_all_parts_together_and_tells_no_rows():
    rows = RowUpdate(torch.tensor([[1, 4], [0, 0]], dtype=torch.int32), torch.tensor([2, 1]), torch.ones(2, 2, 3), 6)
    known = torch.full((2, 4), 7.0)
    parts = {"items": rows, "table": Table(known + 2, known), "net": torch.full((2, 5), 3.0)}
    out = stage(clip=0.7).apply(parts, torch.tensor([0, 1]), 0)
    flat = torch.cat([out["items"].flatten(1), out["table"].value - known, out["net"]], 1)
    assert flat.norm(dim=1).tolist() == pytest.approx([0.7, 0.7], rel=1e-5)
    assert out["items"].shape == (2, 6, 3)
    left = out["net"][:, :1] / 3  # of every client's upload
    torch.testing.assert_close(out["table"].value, known + 2 * left.expand(2, 4))
    same = stage(clip=1e6).apply(parts, torch.tensor([0, 1]), 0)
    assert torch.equal(same["table"].value, known + 2)
    assert torch.equal(same["items"], rows.dense())
    assert stage().weights(torch.tensor([3.0, 9.0])).tolist() == [1, 1]


@pytest.mark.parametrize("reproducible", [False, True])
@pytest.mark.parametrize("share", [1.0, 0.25])
def test_noise_has_the_stated_law_and_lies_on_data_only(share, reproducible):
    zeros = {
        "items": torch.zeros(300, 500),
        "items.weight": torch.zeros(()),
        "counts": torch.zeros(50_000, dtype=torch.int32),
    }
    total = Total(zeros)
    stage(noise=3.0, clip=2.0, share=share, reproducible=reproducible).seal(total, 5)
    drawn = total["items"].flatten().double().numpy() / (6.0 * share**0.5)
    assert stats.kstest(drawn, stats.norm.cdf).pvalue > 1e-3
    assert abs(drawn @ drawn / len(drawn) - 1) < 4 * math.sqrt(2 / len(drawn))
    assert float(total["items.weight"]) == 0
    whole = total["counts"].double()
    assert float(whole.std()) == pytest.approx(6.0 * share**0.5, rel=0.02)
    assert total["counts"].dtype == torch.int32


def test_noise_differs_between_places_rounds_and_sums_but_not_when_a_round_is_repeated():
    def drawn(one, round=0):
        total = Total({"a": torch.zeros(4000), "b": torch.zeros(4000)})
        one.seal(total, round)
        return total["a"], total["b"]

    first, other = stage(), stage()
    again = stage()
    again.prepare(0)
    first.prepare(0)
    again.load_state(first.state())
    assert torch.equal(drawn(first)[0], drawn(again)[0])
    found = torch.stack([*drawn(first), *drawn(first, 1), *drawn(other)]).numpy()
    assert abs(np.corrcoef(found) - np.eye(6)).max() < 5 / np.sqrt(4000)
    seeded = [stage(reproducible=True, seed=seed) for seed in (0, 0, 1)]
    one, two, three = (drawn(each)[0] for each in seeded)
    assert torch.equal(one, two)
    assert not torch.equal(one, three)
    assert seeded[0].epsilon(1, 1) is None


def test_a_sum_that_is_repeated_with_other_numbers_has_other_noise():
    """Under the same noise the difference of both sums would be bare."""
    one, drawn = stage(), []
    for value in (0.0, 0.0, 1.0):
        total = Total({"a": torch.full((4000,), value)})
        one.seal(total, 0)
        drawn.append(total["a"].double() - value)
    assert torch.equal(drawn[0], drawn[1])
    assert abs(np.corrcoef(drawn[0], drawn[2])[0, 1]) < 5 / np.sqrt(4000)


@pytest.mark.parametrize("participation", [1.0, 0.3])
def test_the_client_that_takes_part_most_often_is_known_before_the_run(small, participation):
    method = create("fedmf", FAST | {"participation": participation})
    run = fedrec.train(method, small, rounds=6, progress=False, privacy=CentralPrivacy(epsilon=3.0, clip=0.1))
    assert run.result.privacy.most_uploads_of_a_client == most_uploads(method, run.trainer.task, 6)
    assert run.result.privacy.epsilon_total == pytest.approx(3.0, rel=1e-3)
    assert (run.result.privacy.most_uploads_of_a_client == 6) == (participation == 1.0)


def test_an_outsider_needs_less_noise(small):
    noise = {}
    for observer in ("server", "outsider"):
        method = create("fedmf", FAST | {"participation": 0.02})
        wanted = CentralPrivacy(epsilon=1.0, observer=observer)
        found = fedrec.train(method, small, rounds=30, progress=False, privacy=wanted).result.privacy
        assert found.epsilon_total <= 1.0001
        assert found.observer == observer
        noise[observer] = found.noise_multiplier
    assert noise["outsider"] != noise["server"]


def test_more_rounds_need_more_noise_so_another_run(small, tmp_path):
    wanted = CentralPrivacy(epsilon=3.0)
    make = lambda **more: fedrec.train(  # noqa: E731
        create("fedmf", FAST), small, out=tmp_path, keep_checkpoints=True, progress=False, privacy=wanted, **more
    )
    make(rounds=2)
    with pytest.raises(ConfigError, match="privacy noise"):
        make(rounds=3, resume=True)
    secret = [path for path in tmp_path.rglob("*.safetensors") if b"secret.noise" in path.read_bytes()]
    assert {path.parent.parent.name for path in secret} == {"checkpoints"}


def test_who_reads_every_upload_or_nothing_is_refused(small):
    for name, options, words in (
        ("gpfedrec", {}, "its server reads every client's upload"),
        ("local", {}, "nobody sends anything"),
        ("fedcia", {}, "its tables cannot be clipped"),
    ):
        with pytest.raises(ConfigError, match=words):
            fedrec.train(create(name, options), small, rounds=1, progress=False, privacy=CentralPrivacy(noise=1.0))
    with pytest.raises(ValueError, match="give epsilon"):
        CentralPrivacy()


@pytest.mark.parametrize(
    ("options", "epsilon", "verdict"),
    [
        (
            {},
            gaussian_epsilon(4.0, 3, 1e-5),
            "against the server a user's data, over the whole run, are differentially",
        ),
        (
            {"observer": "outsider"},
            gaussian_epsilon(4.0, 3, 1e-5),
            "against who sees every model but not who took part",
        ),
        ({"noise": 0.0}, None, "no guarantee: there is no noise"),
        ({"reproducible": True}, None, "no guarantee: the noise follows from the run's seed"),
        ({"noise": 0.1}, gaussian_epsilon(0.1, 3, 1e-5), "no meaningful guarantee: epsilon"),
    ],
)
def test_a_report_says_what_three_uploads_in_five_rounds_are_worth(options, epsilon, verdict):
    made = stage(**({"noise": 4.0, "clip": 0.5} | options))
    said = made.describe(3, ("a note",), rounds=5)
    assert made.epsilon(3, 5) == said["epsilon_total"] == pytest.approx(epsilon)
    assert made.words(3, 5) == ("no privacy guarantee" if epsilon is None else f"epsilon {epsilon:.4g} (delta 1e-05)")
    assert said["verdict"].startswith(verdict)
    assert (made.words(3, 5) in said["verdict"]) == verdict.startswith("against")
    assert said["spends_delta"] == (epsilon is not None)
    assert said["epsilon_per_round"] == made.epsilon(1, 1)
    assert (said["most_uploads_of_a_client"], said["clip"], said["delta"]) == (3, 0.5, 1e-5)
    assert (said["mechanism"], said["observer"]) == ("central", options.get("observer", "server"))
    noise = options.get("noise", 4.0)
    assert (said["noise_multiplier"], said["scale"]) == (noise, noise * 0.5)
    assert said["reproducible"] == options.get("reproducible", False)
    assert said["notes"] == ["a note", "every client weighs the same"]


def test_an_outsider_is_told_what_sampled_rounds_cost():
    about = Task(200, 6, torch.ones(200, dtype=torch.int64), 0, torch.device("cpu"))
    made = CentralStage(CentralPrivacy(noise=4.0, observer="outsider"), 0)
    made.meet(create("fedmf", participation=0.1), about)
    assert made.epsilon(3, 30) == sampled_epsilon(4.0, 30, 1e-5, Sampling(200, 20))
    made.meet(create("fedmf"), about)
    assert made.epsilon(3, 30) == gaussian_epsilon(4.0, 3, 1e-5), "nobody is drawn, so nobody is hidden"


def test_the_secret_is_what_a_run_goes_on_with_where_there_is_one():
    one = stage()
    one.prepare(3)
    assert set(one.state()) == {"noise"}
    assert one.state()["noise"].numel() >= 16
    assert not torch.equal(one.state()["noise"], stage_with_a_secret().state()["noise"])
    before = one.state()["noise"].clone()
    one.prepare(3)
    assert torch.equal(one.state()["noise"], before)
    assert stage(reproducible=True).state() == {}


def stage_with_a_secret():
    made = stage()
    made.prepare(3)
    return made


class Counted:
    """A method whose participants are listed."""

    draws_participants, participation = True, 0.5

    def __init__(self, rounds, blocks=1, participation=0.5):
        self.rounds, self.turns, self.participation = rounds, blocks, participation

    def blocks(self, task):
        return self.turns

    def server_state(self, task):
        return {"of": "the server"}

    def participants(self, task, server, round):
        assert server == {"of": "the server"}
        return torch.tensor(self.rounds[round])


def test_the_most_uploads_are_counted_round_by_round_and_block_by_block():
    about = Task(4, 6, torch.ones(4, dtype=torch.int64), 0, torch.device("cpu"))
    who = [[0, 1], [1, 2], [3, 1], [2, 0], [2, 3], [2, 1]]
    assert [most_uploads(Counted(who), about, rounds) for rounds in (1, 3, 6)] == [1, 3, 4]
    assert most_uploads(Counted(who, blocks=2), about, 2) == 3
    assert most_uploads(Counted(who, blocks=2, participation=1.0), about, 3) == 4, "blocks may overlap"
    assert most_uploads(Counted(None, participation=1.0), about, 7) == 7


def test_a_method_that_bounds_what_it_adds_is_not_clipped_and_gets_noise_for_its_bounds():
    class Bounded(type(create("fedmf"))):
        def sum_bounds(self):
            return {"a": 0.5, "b": 8.0}

        def public_sum(self, name):
            return name == "c"

    made = CentralStage(CentralPrivacy(noise=2.0, clip=1.0), 0)
    made.meet(Bounded(), Task(3, 6, torch.ones(3, dtype=torch.int64), 0, torch.device("cpu")))
    parts = {"a": torch.full((2, 3), 100.0)}
    assert made.apply(parts, torch.arange(2), 0) is parts
    total = Total({name: torch.zeros(20_000) for name in "abc"})
    made.seal(total, 0)
    assert float(total["a"].std()) == pytest.approx(1.0, rel=0.03)
    assert float(total["b"].std()) == pytest.approx(16.0, rel=0.03)
    assert not total["c"].any()


def test_nothing_sent_is_nothing_clipped():
    assert stage().apply({}, torch.arange(2), 0) == {}
