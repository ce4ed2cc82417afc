import pytest
import torch

from fedrec.federation.payload import RowUpdate, Upload
from fedrec.federation.total import Total
from fedrec.parts import aggregation
from fedrec.parts.aggregation import add_mean, add_rows, noise_notes, noise_problem, step_mean, step_rows

M, D = 8, 3


def uploads(touched, values=None, sizes=None):
    """Two cohorts of clients that changed the given rows."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for start, cohort in ((0, touched[:1]), (1, touched[1:])):
        width = max(map(len, cohort))
        rows = torch.zeros(len(cohort), width, dtype=torch.int32)
        block = torch.zeros(len(cohort), width, D)
        for i, items in enumerate(cohort):
            rows[i, : len(items)] = torch.tensor(items)
            block[i, : len(items)] = torch.randn(len(items), D, generator=generator) if values is None else values
        counts = torch.tensor([len(items) for items in cohort])
        weights = torch.ones(len(cohort)) if sizes is None else torch.tensor(sizes[start : start + len(cohort)])
        found.append(Upload(torch.arange(len(cohort)), weights, {"items": RowUpdate(rows, counts, block, M)}))
    return found


def dense(found):
    return torch.cat([u.parts["items"].dense() for u in found])


def stepped(found, rule):
    """The table after the sums of both cohorts."""
    total = Total()
    for upload in found:
        add_rows(total, upload, "items", rule)
    return step_rows(TABLE, total, "items", rule)


TABLE = torch.randn(M, D, generator=torch.Generator().manual_seed(1))
TOUCHED = [[0, 1, 2], [1, 5], [1, 2, 7]]


def test_every_rule_against_its_formula():
    found = uploads(TOUCHED)
    change = dense(found)
    touched = torch.zeros(3, M)
    for client, items in enumerate(TOUCHED):
        touched[client, items] = 1
    assert torch.allclose(stepped(found, "sum"), TABLE + change.sum(0))
    assert torch.allclose(stepped(found, "uniform"), TABLE + change.mean(0), atol=1e-6)
    mean = change.sum(0) / touched.sum(0).clamp(min=1)[:, None]
    assert torch.allclose(stepped(found, "touched"), TABLE + mean, atol=1e-6)
    norm = change.abs().sum(2, keepdim=True)
    weighted = (norm * (TABLE + change)).sum(0) / norm.sum(0).clamp(min=1e-30)
    expected = torch.where(norm.sum(0) > 0, weighted, TABLE)
    assert torch.allclose(stepped(found, "change"), expected, atol=1e-5)


def test_size_weights():
    found = uploads(TOUCHED, sizes=[1.0, 3.0, 4.0])
    share = torch.tensor([1.0, 3.0, 4.0]) / 8
    expected = TABLE + (share[:, None, None] * dense(found)).sum(0)
    assert torch.allclose(stepped(found, "size"), expected, atol=1e-6)


def test_uniform_and_touched_agree_if_everybody_touches_everything():
    found = uploads([list(range(M))] * 3)
    left, right = (stepped(found, rule) for rule in ("uniform", "touched"))
    assert torch.allclose(left, right, atol=1e-6)


def test_change_equals_touched_for_equal_norms():
    found = uploads(TOUCHED, values=0.25)
    left, right = (stepped(found, rule) for rule in ("change", "touched"))
    assert torch.allclose(left, right, atol=1e-6)


@pytest.mark.parametrize("rule", ["uniform", "size", "touched", "change"])
def test_one_client_alone_gets_its_own_table_back(rule):
    found = uploads([[0, 3], []])[:1]
    assert torch.allclose(stepped(found, rule), TABLE + dense(found)[0], atol=1e-6)


@pytest.mark.parametrize("rule", ["sum", "uniform", "size", "touched", "change"])
def test_dense_uploads_count_every_row(rule):
    found = uploads([list(range(M))] * 3)
    plain = [Upload(u.clients, u.weights, {"items": u.parts["items"].dense()}) for u in found]
    assert torch.allclose(stepped(found, rule), stepped(plain, rule), atol=1e-6)


@pytest.mark.parametrize("rule", ["size", "uniform"])
def test_what_everybody_trains_moves_by_the_weighted_mean(rule):
    sizes, changes = torch.tensor([1.0, 3.0, 4.0]), torch.randn(3, 5, generator=torch.Generator().manual_seed(2))
    total = Total()
    for part in (slice(0, 1), slice(1, 3)):
        add_mean(total, Upload(torch.arange(3)[part], sizes[part], {"network": changes[part]}), "network", rule)
    share = sizes / 8 if rule == "size" else torch.full((3,), 1 / 3)
    start = torch.ones(5)
    assert torch.allclose(step_mean(start, total, "network"), start + share @ changes, atol=1e-6)
    assert torch.equal(step_mean(start, Total(), "network"), start)


@pytest.mark.parametrize("norm", ["l1", "l2", "coordinate"])
def test_changes_are_weighted_with_their_size(norm):
    """Rows with a norm of their change, or every coordinate with its own."""
    total, found = Total(), uploads(TOUCHED)
    change = dense(found)
    for upload in found:
        add_rows(total, upload, "items", "change", norm=norm)
    size = {
        "l1": change.abs().sum(2, keepdim=True),
        "l2": change.square().sum(2, keepdim=True).sqrt(),
        "coordinate": change.abs(),
    }[norm]
    mean = (size * change).sum(0) / size.sum(0).clamp(min=1e-30)
    torch.testing.assert_close(step_rows(TABLE, total, "items", "change"), TABLE + mean)


def test_tiny_changes_are_averaged_like_any_other():
    found = uploads(TOUCHED, values=1e-30)
    total = Total()
    for upload in found:
        add_rows(total, upload, "items", "change", norm="coordinate")
    moved = step_rows(torch.zeros(M, D), total, "items", "change")
    assert torch.isfinite(moved).all()
    assert moved.max() <= 1.001e-30


@pytest.mark.parametrize("rule", ["sum", "uniform", "size", "touched", "change"])
def test_a_round_without_uploads_leaves_the_table(rule):
    assert torch.equal(step_rows(TABLE, Total(), "items", rule), TABLE)


def test_clients_without_weight_move_nothing():
    total = Total()
    add_mean(total, Upload(torch.arange(1), torch.zeros(1), {"network": torch.tensor([[4.0]])}), "network")
    assert step_mean(torch.ones(1), total, "network").tolist() == [1.0]


@pytest.mark.parametrize("rule", ["sum", "uniform", "size", "touched"])
def test_compiled_sums_are_those_of_torch_whatever_the_number_of_threads(monkeypatch, rule):
    c, widest, m = 300, 40, 500
    counts = torch.randint(0, widest + 1, (c,))
    rows = torch.stack([torch.randperm(m)[:widest].sort().values for _ in range(c)]).int()
    part = RowUpdate(rows, counts, torch.randn(c, widest, 3), m)
    upload = Upload(torch.arange(c), torch.randint(1, 9, (c,)).float(), {"items": part})

    def added():
        total = Total()
        for _ in range(2):
            add_rows(total, upload, "items", rule)
        return total

    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = added()
        torch.set_num_threads(4)
        four = added()
    finally:
        torch.set_num_threads(threads)
    monkeypatch.setenv("FEDREC_KERNELS", "off")
    wanted = added()
    assert set(one) == set(four) == set(wanted)
    for name in wanted:
        assert torch.equal(one[name], four[name])
        assert one[name].shape == wanted[name].shape
        assert torch.allclose(one[name].double(), wanted[name].double(), atol=1e-4)


def test_compiled_code_adds_up_unless_it_cannot_or_must_not(monkeypatch):
    """Rows weighted by their change, numbers that are not float32 and dense uploads go the way of torch."""
    used = []
    monkeypatch.setattr(aggregation, "_add_compiled", lambda *given: used.append(given[-1]))
    (upload,) = uploads([[0, 3], []])[:1]
    for rule in ("sum", "uniform", "size", "touched", "change"):
        add_rows(Total(), upload, "items", rule)
    assert used == ["sum", "uniform", "size", "touched"]
    part = upload.parts["items"]
    double = RowUpdate(part.rows, part.counts, part.values.double(), M)
    for other in (double, part.dense()):
        add_rows(Total(), Upload(upload.clients, upload.weights, {"items": other}), "items", "touched")
    monkeypatch.setenv("FEDREC_KERNELS", "off")
    add_rows(Total(), upload, "items", "touched")
    assert len(used) == 4


@pytest.mark.parametrize("kernels", ["on", "off"])
def test_two_clients_worked_out_by_hand(kernels, monkeypatch):
    """Both changed item 1, by 2 and -6, the first also item 0 by 4; the second one has three times as many items."""
    monkeypatch.setenv("FEDREC_KERNELS", kernels)
    rows, counts = torch.tensor([[0, 1], [1, 0]], dtype=torch.int32), torch.tensor([2, 1])
    part = RowUpdate(rows, counts, torch.tensor([[[4.0], [2.0]], [[-6.0], [0.0]]]), 3)
    upload = Upload(torch.arange(2), torch.tensor([1.0, 3.0]), {"items": part})
    moved = {
        "sum": [4.0, -4.0, 0.0],
        "uniform": [4 / 2, -4 / 2, 0.0],
        "size": [4 * 1 / 4, (2 * 1 - 6 * 3) / 4, 0.0],
        "touched": [4.0, -4 / 2, 0.0],
        "change": [4.0, (2 * 2 - 6 * 6) / 8, 0.0],
    }
    for rule, expected in moved.items():
        total = Total()
        add_rows(total, upload, "items", rule)
        found = step_rows(torch.full((3, 1), 10.0), total, "items", rule)
        assert found.flatten().tolist() == pytest.approx([10 + change for change in expected]), rule
        assert found.dtype == torch.float32


def test_noise_makes_no_sense_of_rows_weighted_by_their_change():
    assert [rule for rule in ("sum", "uniform", "size", "touched", "change") if noise_problem(rule)] == ["change"]
    assert noise_problem("change").startswith("its rows are weighted by how much they changed")
    assert [rule for rule in ("sum", "uniform", "size", "touched", "change") if noise_notes(rule)] == ["touched"]
    (note,) = noise_notes("touched")
    assert note.endswith("so every row is averaged over all participants (agg=uniform)")


def test_sums_lie_where_the_rows_are(monkeypatch):
    """Where another device is the default, as a GPU could be, what is made without naming one does not fit the rest."""
    monkeypatch.setenv("FEDREC_KERNELS", "off")
    for rule in ("size", "touched", "change"):
        expected = stepped(uploads(TOUCHED), rule)
        found = uploads(TOUCHED)
        with torch.device("meta"):
            assert torch.equal(stepped(found, rule), expected)
