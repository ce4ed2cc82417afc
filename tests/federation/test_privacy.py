import numpy as np
import pytest
import torch
from scipy import stats

import fedrec
from fedrec.federation.payload import RowUpdate, Table
from fedrec.federation.privacy import Privacy, PrivacyStage
from fedrec.federation.simulation import Simulation
from fedrec.methods.fedem import FedEM
from fedrec.methods.fedmf import FedMF


def upload(scale=1.0):
    rows = torch.tensor([[1, 4], [0, 0]], dtype=torch.int32)
    values = torch.full((2, 2, 3), scale)
    values[1, 1] = 0
    return RowUpdate(rows, torch.tensor([2, 1]), values, n_items=6)


@pytest.mark.parametrize(("mechanism", "norm"), [("laplace", 1), ("gaussian", 2)])
def test_the_clipping_bound_holds_over_all_parts(mechanism, norm):
    stage = PrivacyStage(Privacy(mechanism=mechanism, clip=0.7, scale=0), seed=0)
    parts = {"items": upload(5.0), "net": torch.randn(2, 4)}
    out = stage.apply(parts, torch.tensor([0, 1]), 0)
    flat = torch.cat([out["items"].flatten(1), out["net"].flatten(1)], 1)
    assert torch.linalg.vector_norm(flat, ord=norm, dim=1).tolist() == pytest.approx([0.7, 0.7], rel=1e-5)
    small = PrivacyStage(Privacy(mechanism=mechanism, clip=1e6, scale=0), seed=0).apply(parts, torch.tensor([0, 1]), 0)
    assert torch.equal(small["items"], parts["items"].dense())


@pytest.mark.parametrize(
    ("mechanism", "law"), [("laplace", stats.laplace(scale=0.3)), ("gaussian", stats.norm(scale=0.3))]
)
def test_the_noise_distribution(mechanism, law):
    stage = PrivacyStage(Privacy(mechanism=mechanism, clip=1.0, scale=0.3), seed=1)
    out = stage.apply({"x": torch.zeros(4, 5000)}, torch.arange(4), 3)["x"]
    assert stats.kstest(out.flatten().numpy(), law.cdf).pvalue > 1e-3
    assert abs(np.corrcoef(out.numpy())[np.triu_indices(4, 1)]).max() < 0.06, "clients must get independent noise"


def test_noise_covers_untouched_rows_and_depends_on_round_and_client():
    stage = PrivacyStage(Privacy(clip=1.0, scale=0.1), seed=0)
    first = stage.apply({"items": upload()}, torch.tensor([0, 1]), 0)["items"]
    assert bool((first != 0).all()), "noise on touched rows only would show which they are"
    assert not torch.equal(first, stage.apply({"items": upload()}, torch.tensor([0, 1]), 1)["items"])
    assert torch.equal(first[1:], stage.apply({"items": _second(upload())}, torch.tensor([1]), 0)["items"])


def _second(update):
    return RowUpdate(update.rows[1:], update.counts[1:], update.values[1:], update.n_items)


def test_tables_keep_their_start():
    value = torch.randn(2, 6, 3)
    out = PrivacyStage(Privacy(clip=0.5, scale=0), 0).apply(
        {"items": Table(value, upload(2.0))}, torch.tensor([0, 1]), 0
    )
    change = out["items"].value - (value - upload(2.0).dense())
    assert change.flatten(1).abs().sum(1).tolist() == pytest.approx([0.5, 0.5], abs=1e-4)


@pytest.mark.parametrize("method", [FedMF(epochs=1), FedEM(epochs=1)], ids=["fedmf", "fedem"])
def test_private_state_is_never_uploaded_and_scoring_stays_noise_free(small, method):
    plain, noisy = (
        Simulation(method, small.training, privacy=stage)
        for stage in (None, PrivacyStage(Privacy(clip=1.0, scale=10.0), 0))
    )
    sent = []
    original = type(method).aggregate

    def spy(self, server, uploads, round):
        def watched():
            for item in uploads:
                sent.append(set(item.parts))
                yield item

        return original(self, server, watched(), round)

    try:
        type(method).aggregate = spy
        for simulation in (plain, noisy):
            simulation.round(0)
    finally:
        type(method).aggregate = original
    assert sent
    assert all(names <= {"items"} for names in sent)
    everybody = torch.arange(small.data.n_users)
    for name in plain.store.tensors:
        assert torch.equal(plain.store.at(everybody)[name], noisy.store.at(everybody)[name]), name


def test_epsilon_and_words():
    stage = PrivacyStage(Privacy(clip=1.0, scale=2.0), seed=0)
    assert stage.epsilon(1) == pytest.approx(1.0)
    assert 0 < stage.epsilon(10) <= 10.0
    assert stage.describe(10)["epsilon_per_round"] == pytest.approx(1.0)
    assert "locally differentially private" in stage.describe(10)["verdict"]
    assert "no meaningful guarantee" in PrivacyStage(Privacy(clip=1.0, scale=0.01), 0).describe(1)["verdict"]
    for useless in (Privacy(clip=None, scale=1.0), Privacy(clip=1.0, scale=0)):
        assert PrivacyStage(useless, 0).epsilon(5) is None
        assert "no guarantee" in PrivacyStage(useless, 0).describe(5)["verdict"]


def test_gaussian_epsilon_composes_below_the_plain_sum():
    pytest.importorskip("dp_accounting")
    stage = PrivacyStage(Privacy(mechanism="gaussian", clip=1.0, scale=20.0), seed=0)
    assert 0 < stage.epsilon(1) < stage.epsilon(50) < 50 * stage.epsilon(1)


def test_a_run_reports_epsilon_everywhere(small, capsys, tmp_path):
    run = fedrec.train(
        FedMF(epochs=1), small, rounds=2, out=tmp_path / "run", privacy=Privacy(clip=1.0, scale=1.0), device="cpu"
    )
    assert run.result["privacy"]["epsilon_total"] == pytest.approx(
        run.result["privacy"]["epsilon_per_round"] * 2, rel=0.5
    )
    assert "epsilon" in capsys.readouterr().err
