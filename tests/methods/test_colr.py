import math

import pytest
import torch

import fedrec
from fedrec.errors import ConfigError
from fedrec.federation.payload import RowUpdate, Upload, row_update, tensor
from fedrec.federation.simulation import Simulation
from fedrec.local.factorisation import MatrixFactorisation
from fedrec.local.fit import Batch, Optimizer, Params, Schedule, Step, fit, take_rows
from fedrec.local.low_rank import LowRank
from fedrec.methods.colr import CoLR, draw_projection
from fedrec.methods.fedmf import FedMF
from fedrec.sampling.negatives import Sampler
from fedrec.sampling.samples import Samples
from fedrec.testing import MethodSuite

KEY = torch.tensor([123456789])
D = 8


class TestCoLR(MethodSuite):
    method = CoLR
    options = {"lr": 2.0}
    floor = 0.40


class TestFullUpload(MethodSuite):
    method = CoLR
    options = {"upload": "full", "rank": 2, "projection": "gaussian", "optimizer": "adam", "lr": 0.05}
    rounds = 5
    floor = 0.2


@pytest.fixture(scope="module")
def demo() -> fedrec.Split:
    return fedrec.HONEST.split(fedrec.load("demo"), seed=0)


def setting(demo: fedrec.Split, rank: int) -> tuple[torch.Tensor, ...]:
    samples = Sampler(demo.training).draw(torch.arange(20), negatives=4, seed=3, round=1)
    draw = torch.Generator().manual_seed(0)
    user = torch.randn(20, D, generator=draw) * 0.5
    base = take_rows(torch.randn(demo.data.n_items, D, generator=draw) * 0.5, samples)
    return samples, user, base, torch.zeros(*samples.rows.shape, rank)


def train(
    problem: LowRank,
    user: torch.Tensor,
    base: torch.Tensor,
    low: torch.Tensor,
    samples: Samples,
    schedule: Schedule,
    lr: float,
    optimizer: Optimizer = "sgd",
) -> torch.Tensor:
    params = {"user": user, "base": base, "low": low}
    return problem.train(params, samples, schedule, [Step(("user", "low"), lr, optimizer)])


def test_orthogonal_projection() -> None:
    b = draw_projection(KEY, 3, D, "orthogonal").double()
    assert torch.allclose(b @ b.T, torch.eye(3).double() * D / 3, atol=1e-6)
    pi = b.T @ b * 3 / D
    assert torch.allclose(pi, pi.T)
    assert torch.allclose(pi @ pi, pi, atol=1e-6)
    assert float(pi.trace()) == pytest.approx(3, abs=1e-5)


def test_other_projections() -> None:
    rows = draw_projection(KEY, 3, D, "row_normalised")
    assert torch.allclose(rows.norm(dim=1), torch.ones(3))
    many = draw_projection(KEY, 50, 400, "gaussian")
    assert float(many.std()) == pytest.approx(50**-0.5, rel=0.02)


@pytest.mark.parametrize("per_row", [True, False])
def test_explicit_factor_equals_projected_gradients(demo: fedrec.Split, per_row: bool) -> None:
    """Section 3 of the card: SGD on A is SGD on rows whose gradient is projected by Pi and scaled by sqrt(d/r)."""
    rank, lr = 3, 0.5
    samples, user, base, low = setting(demo, rank)
    b = draw_projection(KEY, rank, D, "orthogonal")
    other, rows = user.clone(), base.clone()
    schedule = Schedule(2, 64)
    train(LowRank(b, per_row, l2=0), user, base, low, samples, schedule, lr)
    projector = b.T @ b * rank / D * math.sqrt(D / rank)

    def projected(params: Params, batch: Batch) -> torch.Tensor:
        weight = torch.ones(*batch.slots.shape, 1)
        if per_row:
            same = (batch.slots[:, :, None] == batch.slots[:, None, :]) & batch.mask[:, None, :]
            weight = batch.mask.sum(1)[:, None, None] / same.sum(2, keepdim=True).clamp(min=1)
        index = batch.slots.long()[..., None].expand(-1, -1, D)
        looked_up = params["block"].gather(1, index)
        looked_up.register_hook(lambda gradient: gradient * weight @ projector)
        return batch.bce((looked_up @ params["user"].unsqueeze(2)).squeeze(2))

    step = Step(("user", "block"), lr, "sgd")
    fit({"user": other, "block": rows}, projected, samples, schedule, [step])
    assert (base + low @ b - rows).abs().max() < 1e-6 * max(1, float(rows.abs().max()) * 5)
    assert (user - other).abs().max() < 1e-5
    assert low.abs().max() > 1e-3


def test_full_rank_is_fedmf(demo: fedrec.Split) -> None:
    common = {"dim": D, "epochs": 2, "lr": 1.0, "optimizer": "sgd"}
    mine = Simulation(CoLR(rank=D, averaging="batch", l2=0, **common), demo.training)
    other = Simulation(FedMF(**common), demo.training)
    for number in range(3):
        mine.round(number)
        other.round(number)
    everybody = torch.arange(demo.data.n_users)
    assert torch.allclose(mine.scores(everybody), other.scores(everybody), atol=1e-5)


def test_duplicated_samples_leave_per_row_steps_unchanged(demo: fedrec.Split) -> None:
    found = []
    for times in (1, 2):
        samples, user, base, low = setting(demo, 3)
        if times == 2:
            # Every sample twice: valid ones stay in front of the padding.
            place = torch.arange(2 * samples.items.shape[1])
            index = torch.where(place < 2 * samples.counts[:, None], place // 2, samples.items.shape[1] - 1)
            doubled = {n: getattr(samples, n).gather(1, index) for n in ("items", "labels", "slots")}
            samples = type(samples)(**(vars(samples) | doubled | {"counts": samples.counts * 2}))
        b = draw_projection(KEY, 3, D, "orthogonal")
        train(LowRank(b, per_row=True, l2=0.01), user, base, low, samples, Schedule(1, 10_000), 0.5)
        found.append((user, low))
    assert torch.allclose(found[0][0], found[1][0], atol=1e-6)
    assert torch.allclose(found[0][1], found[1][1], atol=1e-6)


@pytest.mark.parametrize("kind", ["touched", "full"])
def test_rows_are_divided_by_the_clients_that_touched_them(demo: fedrec.Split, kind: str) -> None:
    """Item 0 is touched by 3 of 5 clients, item 1 by nobody."""
    simulation = Simulation(CoLR(rank=2, dim=4, upload=kind), demo.training)
    server, m = simulation.server, demo.data.n_items
    rows = RowUpdate(torch.zeros(5, 1, dtype=torch.int32), torch.tensor([1, 1, 0, 1, 0]), torch.ones(5, 1, 2), m)
    marked = RowUpdate(rows.rows, rows.counts, torch.ones(5, 1, 3), m).dense()
    upload = Upload(torch.arange(5), torch.ones(5), {"low_rank": rows if kind == "touched" else marked})
    gathering = simulation.method.gather(simulation.task)
    gathering.add(upload)
    after = gathering.step(server, 0)["items"]
    b = simulation.method._projection(server["projection"])
    assert torch.allclose(after[0], server["items"][0] + torch.ones(2) @ b, atol=1e-6)
    assert torch.equal(after[1:], server["items"][1:])


def test_payload_has_rank_columns_and_bytes_show_it(demo: fedrec.Split) -> None:
    low, full = (Simulation(m, demo.training) for m in (CoLR(rank=4, dim=16), FedMF(dim=16)))
    parts, _ = low.method.train(
        low.task,
        low.store.at(torch.arange(9)),
        low.method.broadcast(low.task, low.server, torch.arange(9)),
        low.sampler.draw(torch.arange(9), negatives=4, seed=0, round=0),
        0,
    )
    assert row_update(parts, "low_rank").values.shape[2] == 4
    assert low.round(0).bytes_up / full.round(0).bytes_up == pytest.approx((4 * 4 + 4) / (16 * 4 + 4))


def test_full_upload_bytes(demo: fedrec.Split) -> None:
    report = Simulation(CoLR(rank=4, upload="full"), demo.training).round(0)
    assert report.bytes_up == report.clients * demo.data.n_items * (4 + 1) * 4


def test_uploads_agree(demo: fedrec.Split) -> None:
    tables = []
    for kind in ("touched", "full"):
        simulation = Simulation(CoLR(upload=kind), demo.training)
        simulation.round(0)
        tables.append(simulation.server["items"])
    assert torch.allclose(*tables, atol=1e-6)


def test_projection_changes_unless_kept(demo: fedrec.Split) -> None:
    for keep in (False, True):
        simulation = Simulation(CoLR(keep_projection=keep), demo.training)
        before = simulation.server["projection"]
        simulation.round(0)
        assert torch.equal(before, simulation.server["projection"]) == keep
        payload = simulation.method.broadcast(simulation.task, simulation.server, torch.arange(2))
        assert tensor(payload, "projection").shape == (2, 1)


def test_both_accounts_of_the_downlink(demo: fedrec.Split) -> None:
    n, m = demo.data.n_users, demo.data.n_items
    simulation = Simulation(CoLR(rank=4, dim=16), demo.training)
    for number in range(3):
        simulation.round(number)
    found = simulation.diagnostics()["downlink_bytes"]
    assert found == {"full": 3 * n * m * 64, "consecutive": n * m * 64 + 2 * n * m * 16}
    rare = Simulation(CoLR(rank=4, dim=16, participation=0.01), demo.training)
    for number in (0, 2, 4):  # nobody is there in two rounds in a row
        rare.round(number)
    found = rare.diagnostics()["downlink_bytes"]
    assert found["full"] == found["consecutive"] > 0


def test_rank_above_dim_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match=r"rank 32 is above dim 16; set rank to 16 or less\.$"):
        CoLR(rank=32)


def test_mf_loss_is_the_loss_without_a_factor(demo: fedrec.Split) -> None:
    samples, user, base, low = setting(demo, 2)
    b = draw_projection(KEY, 2, D, "orthogonal")
    start = user.clone()
    schedule = Schedule(1, 10_000)
    mine = train(LowRank(b, per_row=True, l2=1.0), user, base, low, samples, schedule, 1e-9)
    params = {"user": start, "block": base.clone()}
    other = MatrixFactorisation().train(params, samples, schedule, [Step(("user",), 1e-9, "sgd")])
    assert torch.allclose(mine, other, atol=1e-5)
