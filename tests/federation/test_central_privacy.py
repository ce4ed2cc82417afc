"""Noise on sums: clipping, its law, what it costs, and that a run is told of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

import fedrec
from fedrec.errors import ConfigError
from fedrec.federation.accounting import (
    Sampling,
    gaussian_epsilon,
    gaussian_noise,
    sampled_epsilon,
    sampled_noise,
)
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
    same = stage(clip=1e6).apply(parts, torch.tensor([0, 1]), 0)
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


@pytest.mark.parametrize(("noise", "releases", "delta"), [(1.0, 1, 1e-5), (5.0, 20, 1e-5), (40.0, 100, 1e-6)])
def test_epsilon_is_that_of_the_exact_curve(noise, releases, delta):
    epsilon, s = gaussian_epsilon(noise, releases, delta), noise / math.sqrt(releases)
    phi = stats.norm.cdf  # Balle and Wang 2018, theorem 8, of one Gaussian with the sum's noise
    assert phi(0.5 / s - epsilon * s) - math.exp(epsilon) * phi(-0.5 / s - epsilon * s) == pytest.approx(
        delta, rel=1e-3
    )


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 8.0])
@pytest.mark.parametrize("releases", [1, 30])
def test_calibration_is_the_inverse_of_accounting(epsilon, releases):
    assert gaussian_epsilon(gaussian_noise(epsilon, releases, 1e-5), releases, 1e-5) == pytest.approx(epsilon, rel=1e-3)


def test_calibration_with_sampling_is_the_inverse_from_below():
    few = Sampling(10_000, 100)
    noise = sampled_noise(2.0, 30, 1e-5, few)
    assert 1.98 <= sampled_epsilon(noise, 30, 1e-5, few) <= 2.0
    assert noise < gaussian_noise(2.0, 30, 1e-5)


def test_sampling_hides_a_client_from_who_does_not_know_the_sample():
    known = gaussian_epsilon(2.0, 50, 1e-5)
    spent = [sampled_epsilon(2.0, 50, 1e-5, Sampling(10_000, drawn)) for drawn in (50, 200, 10_000)]
    assert spent[0] < spent[1] < known
    assert spent[2] == known
    assert sampled_epsilon(2.0, 100, 1e-5, Sampling(10_000, 50)) > spent[0]
    # One user's data for another's move a sum by twice the norm: the library is asked for half of the noise per norm.
    from dp_accounting import GaussianDpEvent, NeighboringRelation, SampledWithoutReplacementDpEvent
    from dp_accounting.rdp import RdpAccountant

    replaced = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
    replaced.compose(SampledWithoutReplacementDpEvent(10_000, 50, GaussianDpEvent(1.0)), 50)
    assert spent[0] == pytest.approx(replaced.get_epsilon(1e-5), rel=0.01)
    # Never below what Poisson sampling with half the sensitivity (data that are added, not replaced) costs exactly.
    from dp_accounting import PoissonSampledDpEvent
    from dp_accounting.pld import PLDAccountant

    exact = PLDAccountant()
    exact.compose(PoissonSampledDpEvent(0.005, GaussianDpEvent(2.0)), 50)
    assert spent[0] > exact.get_epsilon(1e-5)


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
