"""The privacy stage where something changes: at the clip norm, without noise, without clipping, at the first upload."""

import sys

import pytest
import torch
from scipy import stats

from fedrec.federation.payload import Table
from fedrec.federation.privacy import MEANINGLESS, Privacy, PrivacyStage

CLIENTS = torch.arange(3)


def clipped(change, clip, mechanism="laplace"):
    return PrivacyStage(Privacy(mechanism=mechanism, clip=clip, scale=0), 0).apply({"x": change}, CLIENTS, 0)["x"]


@pytest.mark.parametrize(("mechanism", "order"), [("laplace", 1), ("gaussian", 2)])
@pytest.mark.parametrize("clip", [0.01, 0.5, 3.0])
def test_changes_beyond_the_clip_norm_shrink_to_it_and_others_stay(mechanism, order, clip):
    """Also where clip and norm are far below 1; a change of nothing stays nothing."""
    change = torch.tensor([[0.03, -0.04], [6.0, 8.0], [0.0, 0.0]])
    out = clipped(change, clip, mechanism)
    for before, after in zip(change, out, strict=True):
        norm = float(torch.linalg.vector_norm(before, ord=order))
        expected = before if norm <= clip else before * (clip / norm)
        torch.testing.assert_close(after, expected)


def test_without_a_clip_norm_only_noise_is_added():
    change = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)) * 1000
    assert torch.equal(clipped(change, None), change)
    stage = PrivacyStage(Privacy(clip=None, scale=0.5, reproducible=True), 0)  # the same noise for other numbers
    noise = stage.apply({"x": torch.zeros(3, 4)}, CLIENTS, 0)["x"]
    noised = stage.apply({"x": change}, CLIENTS, 0)["x"]
    torch.testing.assert_close(noised, change + noise, rtol=0, atol=1e-3)


def test_a_small_change_of_a_table_arrives_as_it_is():
    """Towards where the client went, and not away from it."""
    known = torch.randn(3, 5, 2, generator=torch.Generator().manual_seed(1))
    value = known + torch.linspace(-0.01, 0.02, 10).view(5, 2)
    out = PrivacyStage(Privacy(clip=1.0, scale=0), 0).apply({"x": Table(value, known)}, CLIENTS, 0)["x"]
    torch.testing.assert_close(out.value, value)
    assert out.known is known


@pytest.mark.parametrize(("mechanism", "law"), [("laplace", stats.laplace), ("gaussian", stats.norm)])
def test_a_scale_of_one_is_noise_like_any_other(mechanism, law):
    stage = PrivacyStage(Privacy(mechanism=mechanism, clip=1.0, scale=1.0), seed=0)
    noise = stage.apply({"x": torch.zeros(3, 4000)}, CLIENTS, 0)["x"].flatten().double().numpy()
    assert stats.kstest(noise, law.cdf).pvalue > 1e-3


def test_noise_of_a_large_table_does_not_depend_on_the_blocks_it_is_drawn_in():
    """Blocks hold about four million numbers; every client of a large cohort has noise of its own."""
    stage, many = PrivacyStage(Privacy(clip=1.0, scale=0.1), seed=0), torch.arange(5)
    zeros = torch.zeros(5, 1 << 20)
    together = stage.apply({"x": zeros}, many, 2)["x"]
    for client in range(5):
        assert torch.equal(stage.apply({"x": zeros[:1]}, many[client : client + 1], 2)["x"][0], together[client])


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_before_the_first_upload_nothing_is_spent(mechanism):
    stage = PrivacyStage(Privacy(mechanism=mechanism, clip=1.0, scale=20.0), seed=0)
    assert stage.epsilon(0) == 0
    assert stage.words(0).startswith("epsilon 0")


def test_gaussian_noise_spends_delta_always():
    """Also where its epsilon is far above the sum of Laplace noise of that scale."""
    pytest.importorskip("dp_accounting")
    for scale in (0.5, 20.0):
        stage = PrivacyStage(Privacy(mechanism="gaussian", clip=1.0, scale=scale), seed=0)
        assert stage.spends_delta(1)
        assert "(delta 1e-05)" in stage.words(1)
    assert PrivacyStage(Privacy(mechanism="gaussian", clip=1.0, scale=0.5), 0).epsilon(1) > 2 / 0.5


def test_laplace_budgets_need_no_library(monkeypatch):
    """Then costs of uploads add up, which holds without any delta."""
    for name in [name for name in sys.modules if name.split(".")[0] == "dp_accounting"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    stage = PrivacyStage(Privacy(clip=1.0, scale=37.5), seed=0)  # settings of no other test: budgets are remembered
    assert stage.epsilon(30) == pytest.approx(30 * 2 / 37.5)
    assert not stage.spends_delta(30)


def test_a_verdict_changes_above_the_limit():
    at, above = (PrivacyStage(Privacy(clip=MEANINGLESS / 2, scale=scale), 0).describe(1) for scale in (1.0, 0.999))
    assert at["epsilon_total"] == MEANINGLESS
    assert at["verdict"] == "each client's uploads are locally differentially private with epsilon 50"
    assert above["verdict"].startswith("no meaningful guarantee: epsilon 50.05 is above 50")
