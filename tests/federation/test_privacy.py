import numpy as np
import pytest
import torch
from scipy import stats

import fedrec
from fedrec.federation.payload import RowUpdate, Table
from fedrec.federation.privacy import Privacy, PrivacyStage
from fedrec.federation.simulation import Simulation
from fedrec.federation.trainer import Setup
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


def test_tables_are_clipped_against_what_the_server_knows():
    value, known = torch.randn(2, 6, 3), torch.randn(2, 6, 3)
    out = PrivacyStage(Privacy(clip=0.5, scale=0), 0).apply({"items": Table(value, known)}, torch.tensor([0, 1]), 0)
    change = out["items"].value - known
    assert change.flatten(1).abs().sum(1).tolist() == pytest.approx([0.5, 0.5], abs=1e-4)


@pytest.mark.parametrize(
    "method",
    [FedMF(epochs=1), FedEM(epochs=1, merge="static"), FedEM(epochs=1, variant="code")],
    ids=["fedmf", "static", "code"],
)
def test_another_history_moves_an_upload_by_at_most_twice_the_clip_in_every_round(small, method):
    """The sensitivity behind epsilon: a client's upload given what the server sent, whatever its data and its past."""
    clip, sent = 0.3, []

    class Spy(PrivacyStage):
        def apply(self, parts, clients, round):
            out = super().apply(parts, clients, round)
            for name, part in out.items():
                known = parts[name].known if isinstance(part, Table) else 0
                value = part.value if isinstance(part, Table) else part
                sent.append((value - known).flatten(1).abs().sum(1).max())
            return out

    simulation = Simulation(method, small.training, Setup(privacy=Spy(Privacy(clip=clip, scale=0), 0)))
    for number in range(3):
        simulation.round(number)
    assert len(sent) >= 3
    assert max(sent) <= clip * (1 + 1e-4)


def test_what_the_server_is_said_to_know_it_has_sent(small):
    """FedEM's uploads are measured against the download, or the common start where there was none."""
    method = FedEM(epochs=1, variant="code", agg_ratio=0.5)
    simulation = Simulation(method, small.training)
    for number in range(2):
        simulation.round(number)
    for clients in (torch.tensor([u]) for u in range(small.data.n_users)):
        payload = method.broadcast(simulation.task, simulation.server, clients)
        samples = simulation.sampler.draw(clients, negatives=4, seed=0, round=2)
        parts, _ = method.train(simulation.task, simulation.store.at(clients), payload, samples, 2)
        if parts:
            start = method.client_state(simulation.task, clients)["items"]
            assert torch.equal(parts["items"].known, payload.get("items", start))


@pytest.mark.parametrize("method", [FedMF(epochs=1), FedEM(epochs=1)], ids=["fedmf", "fedem"])
def test_private_state_is_never_uploaded_and_scoring_stays_noise_free(small, method, monkeypatch):
    plain, noisy = (
        Simulation(method, small.training, Setup(privacy=stage))
        for stage in (None, PrivacyStage(Privacy(clip=1.0, scale=10.0), 0))
    )
    sent, gather = [], type(method).gather

    def watched(self, task):
        gathering = gather(self, task)
        add = gathering.add

        def noted(upload):
            sent.append(set(upload.parts))
            add(upload)

        gathering.add = noted
        return gathering

    monkeypatch.setattr(type(method), "gather", watched)
    for simulation in (plain, noisy):
        simulation.round(0)
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
    many = PrivacyStage(Privacy(clip=1.0, scale=40.0), 0).describe(100)
    assert many["epsilon_total"] < 5.0
    assert many["spends_delta"]
    assert "delta" in many["verdict"]
    assert not stage.describe(1)["spends_delta"]
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
    assert run.result.privacy.epsilon_total == pytest.approx(run.result.privacy.epsilon_per_round * 2, rel=0.5)
    assert "epsilon" in capsys.readouterr().err


def test_uploads_are_counted_per_client(small):
    run = fedrec.train(
        FedMF(epochs=1, participation=0.2),
        small,
        rounds=5,
        privacy=Privacy(clip=1.0, scale=1.0),
        device="cpu",
        progress=False,
    )
    assert 1 <= run.result.privacy.most_uploads_of_a_client < 5
