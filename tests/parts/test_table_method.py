"""Methods with one downloaded item table: a round of two clients worked out by hand, and the server's step."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fedrec.federation.payload import Payload, RowUpdate, State, Upload, row_update, tensor
from fedrec.federation.store import ClientState
from fedrec.federation.task import Task
from fedrec.federation.total import Total
from fedrec.local.fit import Batch, Params, lookup
from fedrec.local.problem import LocalProblem
from fedrec.parts.table_method import AveragedTableMethod, TableMethod
from fedrec.sampling.samples import Samples

LR = 0.1


class Squares(AveragedTableMethod):
    """Private numbers a, item rows q, and a shared b: (a q + b - label)^2."""

    name = title = "squares"
    private_names = ("scale",)
    shared_names = ("offset",)

    def server_state(self, task: Task) -> State:
        return super().server_state(task) | {"offset": torch.tensor([0.5]), "unsaid": torch.zeros(1)}

    def client_state(self, task: Task, clients: Tensor) -> State:
        return {"scale": torch.ones(len(clients), 1)}

    def loss(self, params: Params, batch: Batch) -> Tensor:
        rows = lookup(params["block"], batch.slots)[:, :, 0]
        return batch.mean((params["scale"] * rows + params["offset"] - batch.labels).square())

    def scores(self, task: Task, private: ClientState, payload: Payload) -> Tensor:
        return private["scale"] * tensor(payload, "items")[:, :, 0] + tensor(payload, "offset")


def task() -> Task:
    return Task(2, 4, torch.tensor([1, 1]), 0, torch.device("cpu"))


def samples() -> Samples:
    """The first client has item 3 and refuses 1; the second one has item 0."""
    return Samples(
        torch.arange(2),
        items=torch.tensor([[3, 1], [0, 0]], dtype=torch.int32),
        labels=torch.tensor([[1.0, 0.0], [1.0, 0.0]]),
        slots=torch.tensor([[1, 0], [0, 0]], dtype=torch.int32),
        counts=torch.tensor([2, 1]),
        rows=torch.tensor([[1, 3], [0, 0]], dtype=torch.int32),
        row_counts=torch.tensor([2, 1]),
        positives=torch.tensor([1, 1]),
        seed=0,
        round=0,
    )


def trained(**options: object) -> tuple[Payload, Tensor, Tensor]:
    """Upload, losses and private numbers after one step on tables 1, 2, 3, 4 with b = 0.5, a = 2 and a = -1."""
    method = Squares(epochs=1, lr=LR, optimizer="sgd", dim=1, **options)
    table = torch.tensor([[1.0], [2.0], [3.0], [4.0]])
    server = {"items": table, "offset": torch.tensor([0.5]), "unsaid": torch.zeros(1)}
    payload = method.broadcast(task(), server, torch.arange(2))
    assert set(payload) == {"items", "offset"}
    assert tensor(payload, "items").shape == (2, 4, 1)
    tensors = {"scale": torch.tensor([[2.0], [-1.0]])}
    parts, losses = method.train(task(), ClientState(tensors, torch.arange(2)), payload, samples(), 0)
    assert table.flatten().tolist() == [1, 2, 3, 4], "what was sent stays as it is"
    assert server["offset"].tolist() == [0.5]
    return parts, losses, tensors["scale"]


def test_a_step_of_two_clients_worked_out_by_hand() -> None:
    """The first one predicts 2 * 4 + 0.5 for a 1 and 2 * 2 + 0.5 for a 0: errors 7.5 and 4.5. The second -0.5 for a 1: -1.5."""
    parts, losses, scale = trained()
    assert losses.tolist() == pytest.approx([(7.5**2 + 4.5**2) / 2, 1.5**2])
    assert set(parts) == {"items", "offset"}
    rows = row_update(parts, "items")
    assert rows.n_items == 4
    assert rows.counts.tolist() == [2, 1]
    assert rows.rows.tolist()[0] == [1, 3]
    # d loss / d q = 2 error a / samples; of the second client 2 * -1.5 * -1.
    assert rows.values[0].flatten().tolist() == pytest.approx([-LR * 4.5 * 2, -LR * 7.5 * 2])
    assert float(rows.values[1, 0]) == pytest.approx(-LR * 3)
    assert not rows.values[1, 1].any()
    assert tensor(parts, "offset").flatten().tolist() == pytest.approx([-LR * (7.5 + 4.5), LR * 3])
    # d loss / d a = mean of 2 error q.
    assert scale.flatten().tolist() == pytest.approx([2 - LR * (7.5 * 4 + 4.5 * 2), -1 + LR * 3 * 1])


def test_the_server_moves_touched_rows_and_the_shared_number_by_means() -> None:
    parts, _, _ = trained()
    method, total = Squares(dim=1), Total()
    method.contribute(task(), Upload(torch.arange(2), torch.tensor([1.0, 3.0]), parts), total)
    server = {"items": torch.zeros(4, 1), "offset": torch.tensor([0.5]), "unsaid": torch.ones(1)}
    after = method.step(task(), server, total, 0)
    assert after["items"].flatten().tolist() == pytest.approx([-0.3, -0.9, 0.0, -1.5])
    assert after["offset"].tolist() == pytest.approx([0.5 + (1 * -1.2 + 3 * 0.3) / 4]), "weighted by training items"
    assert after["unsaid"].tolist() == [1.0]
    assert server["offset"].tolist() == [0.5]


def test_clients_that_keep_what_is_shared_send_the_table_alone() -> None:
    parts, _, _ = trained()
    del parts["offset"]
    method, total = Squares(dim=1), Total()
    method.contribute(task(), Upload(torch.arange(2), torch.ones(2), parts), total)
    assert set(total) == {"items", "items.weight"}
    server = {"items": torch.zeros(4, 1), "offset": torch.tensor([0.5])}
    assert method.step(task(), server, total, 0)["offset"].tolist() == [0.5]


def test_a_round_in_which_nobody_sends_changes_nothing() -> None:
    server = {"items": torch.ones(4, 1), "offset": torch.tensor([0.5])}
    after = Squares(dim=1).step(task(), server, Total(), 0)
    assert {name: value.tolist() for name, value in after.items()} == {"items": [[1.0]] * 4, "offset": [0.5]}


class Uniform(Squares):
    rule, network_rule = "uniform", "uniform"  # type: ignore[assignment]


def test_a_method_names_other_rules() -> None:
    parts, _, _ = trained()
    method, total = Uniform(dim=1), Total()
    method.contribute(task(), Upload(torch.arange(2), torch.tensor([1.0, 3.0]), parts), total)
    after = method.step(task(), {"items": torch.zeros(4, 1), "offset": torch.zeros(1)}, total, 0)
    assert after["items"].flatten().tolist() == pytest.approx([-0.15, -0.45, 0.0, -0.75])
    assert after["offset"].tolist() == pytest.approx([(-1.2 + 0.3) / 2])
    assert method.privacy_notes() == ()
    assert "which rows a client touched" in Squares(dim=1).privacy_notes()[0]
    assert Squares(dim=1).privacy_problem() is None


class Changed(Squares):
    rule = "change"  # type: ignore[assignment]


def test_rows_weighted_by_their_change_and_noise_do_not_go_together() -> None:
    assert "weighted by how much they changed" in str(Changed(dim=1).privacy_problem())
    assert Changed(dim=1).privacy_notes() == ()


def test_tables_are_random_of_the_given_size_and_functions_of_the_seed() -> None:
    method = Squares(dim=3, init_std=0.2)
    wide = Task(2, 4000, torch.tensor([1, 1]), 5, torch.device("cpu"))
    first = method.first_values(wide)
    assert set(first) == {"items", "offset"}, "what nobody downloads is nobody's first value"
    assert first["items"].shape == (4000, 3)
    assert float(first["items"].std()) == pytest.approx(0.2, rel=0.05)
    assert torch.equal(method.first_values(wide)["items"], method.server_state(wide)["items"])
    assert torch.equal(first["items"], wide.item_table(3, 0.2))


def test_everything_is_trained_in_one_step_at_one_rate_unless_a_method_says_otherwise() -> None:
    (step,) = Squares(dim=1, lr=0.25, optimizer="sgd").steps(samples(), 0)
    assert set(step.names) == {"scale", "offset", "block"}
    assert (step.lr, step.optimizer) == (0.25, "sgd")
    method = Squares(dim=1)
    assert isinstance(method.problem(0), LocalProblem)
    assert method.data_problem(3) == method.problem(3)
    assert method.table_dim == 1


def test_private_parameters_are_copies() -> None:
    tensors = {"scale": torch.tensor([[2.0], [-1.0]])}
    private = ClientState(tensors, torch.arange(2))
    params = Squares(dim=1).private_params(private, samples())
    assert list(params) == ["scale"]
    params["scale"] += 1
    assert tensors["scale"].flatten().tolist() == [2.0, -1.0]


class Lossless(TableMethod):
    name = title = "lossless"
    server_state = client_state = gather = scores = lambda *given: {}  # type: ignore[assignment]


def test_a_method_without_a_loss_is_told_so() -> None:
    with pytest.raises(NotImplementedError, match="Lossless needs a loss, or a problem that has one"):
        Lossless().loss({}, None)  # type: ignore[arg-type]


def test_rows_are_uploaded_as_the_samples_have_them() -> None:
    parts, _, _ = trained(batch_size=1)
    found = parts["items"]
    assert isinstance(found, RowUpdate)
    assert torch.equal(found.rows, samples().rows)
