import numpy as np
import pytest
import torch

from fedrec.parts import order
from fedrec.parts.order import ONE, Decay, add_histories
from triton_here import DEVICE, needs_triton

ITEMS = 30
DECAYS = [
    Decay(3.0, 1.0, 0.3),
    Decay(None, 2.0, 0.0),
    Decay(0.7, None, 2.5),
    Decay(None, None, 1.0, ordered=False),
    Decay(2.0, 1.0, 0.5, clip=4.0),
]


def lists(sizes=(0, 1, 2, 9, 25), seed=0):
    rng = np.random.default_rng(seed)
    items = np.full((len(sizes), max(sizes)), -1, np.int32)
    for client, size in enumerate(sizes):
        items[client, :size] = rng.permutation(ITEMS)[:size]
    return torch.from_numpy(items)


def added(items, decay):
    past, after = (torch.zeros(ITEMS, ITEMS, dtype=torch.int64) for _ in range(2))
    add_histories(past, after, items, (items >= 0).sum(1), decay)
    return past, after


def one_client(own, decay):
    """A (upper triangle) and R as they are defined."""
    past, after, x = np.zeros((ITEMS, ITEMS)), np.zeros((ITEMS, ITEMS)), np.zeros(ITEMS)
    x[own] = 1
    alike = decay.alike if decay.ordered else 1.0
    past += alike * np.outer(x, x)
    after += alike * np.outer(x, x)
    for t in range(1, len(own)) if decay.ordered else ():
        p, f = np.zeros(ITEMS), np.zeros(ITEMS)
        for j, item in enumerate(own, 1):
            if j <= t:
                p[item] = 1 if decay.past is None else np.exp(-(t - j) / decay.past)
            else:
                f[item] = 1 if decay.future is None else np.exp(-(j - t - 1) / decay.future)
        past += np.outer(p, p)
        after += np.outer(p, f)
    past = np.triu(past)
    norm = np.sqrt((past**2).sum() + (after**2).sum())
    scale = 1.0 if decay.clip is None else min(1.0, decay.clip / max(norm, 1e-12))
    return past * scale, after * scale


@pytest.mark.parametrize("kernels", ["on", "off"])
@pytest.mark.parametrize("decay", DECAYS, ids=str)
def test_entries_are_those_of_the_definition(decay, kernels, monkeypatch):
    monkeypatch.setenv("FEDREC_KERNELS", kernels)
    for row in lists():
        own = row[row >= 0].numpy()
        for found, expected in zip(added(row[None], decay), one_client(own, decay), strict=True):
            assert np.abs(found.numpy() / ONE - expected).max() <= 2.0 / ONE


@pytest.mark.parametrize("decay", DECAYS, ids=str)
def test_compiled_and_reference_agree_to_the_last_bit_in_any_grouping(decay, monkeypatch):
    items = lists((40, 3, 17, 0, 29, 8)[1:], seed=3)
    whole = added(items, decay)
    parts = [added(rows, decay) for rows in torch.split(items, 2)]
    monkeypatch.setenv("FEDREC_KERNELS", "off")
    reference = added(items, decay)
    monkeypatch.setattr(order, "PAIRS", 50)
    chunked = added(items, decay)
    for k in range(2):
        assert torch.equal(whole[k], sum(part[k] for part in parts))
        assert torch.equal(whole[k], reference[k])
        assert torch.equal(whole[k], chunked[k])
        assert int(whole[k].abs().sum()) > ONE


@needs_triton
@pytest.mark.parametrize("decay", DECAYS, ids=str)
def test_a_gpu_adds_the_same_whole_numbers(decay, monkeypatch):
    from fedrec.parts import gpu_order

    monkeypatch.setattr(gpu_order, "TILE", 16)
    monkeypatch.setattr(order.dispatch, "compiled_on", lambda device: "gpu")
    items = lists().to(DEVICE)
    past, after = (torch.zeros(ITEMS, ITEMS, dtype=torch.int64, device=DEVICE) for _ in range(2))
    add_histories(past, after, items, (items >= 0).sum(1), decay)
    monkeypatch.undo()
    for found, expected in zip((past, after), added(lists(), decay), strict=True):
        assert torch.equal(found.cpu(), expected)
    assert past.any()


@pytest.mark.parametrize("decay", DECAYS[:4], ids=str)
def test_norms_are_those_of_the_matrices(decay):
    for length, norm in enumerate(decay.norms(12)):
        past, after = one_client(np.arange(length), decay)
        assert norm == pytest.approx(np.sqrt((past**2).sum() + (after**2).sum()), abs=1e-3)


def test_three_items_worked_out_by_hand():
    """Items 2, 0, 1 in this order: p_1 = e_2, p_2 = e_0 + a e_2; f_1 = e_0 + b e_1, f_2 = e_1, with a = e^-1/3, b = e^-1/2."""
    a, b = np.exp(-1 / 3), np.exp(-1 / 2)
    past, after = added(torch.tensor([[2, 0, 1]], dtype=torch.int32), Decay(3.0, 2.0, 0.25))
    expected = np.array([[1, 0, a], [0, 0, 0], [0, 0, 1 + a * a]]) + 0.25 * np.triu(np.ones((3, 3)))
    assert np.abs(past[:3, :3].numpy() / ONE - expected).max() <= 1 / ONE
    expected = np.array([[0, 1, 0], [0, 0, 0], [1, b + a, 0]]) + 0.25
    assert np.abs(after[:3, :3].numpy() / ONE - expected).max() <= 1 / ONE
    assert not past[3:].any()
    assert not after[:, 3:].any()


@pytest.mark.parametrize("length", [1, 2, 12])
def test_a_client_adds_no_more_than_the_clip_and_short_histories_all_of_theirs(length):
    free, clipped = Decay(3.0, 1.0, 0.3), Decay(3.0, 1.0, 0.3, clip=1.5)
    own = torch.arange(length, dtype=torch.int32)[None]
    norm = np.sqrt(sum(float(part.double().square().sum()) for part in added(own, clipped))) / ONE
    whole = np.sqrt(sum(float(part.double().square().sum()) for part in added(own, free))) / ONE
    assert norm == pytest.approx(min(1.5, whole), rel=1e-3)
    assert (whole > 1.5) == (length > 1)
    assert clipped.scale(np.array([length, 0])) == pytest.approx([min(1, 1.5 / whole), 1.0], rel=1e-4)
    assert free.scale(np.array([length, 0])).tolist() == [1.0, 1.0]


def test_compiled_code_adds_up_unless_it_is_switched_off(monkeypatch):
    used = []
    monkeypatch.setattr(order, "add_pairs", lambda *given: used.append(given))
    added(lists(), DECAYS[0])
    assert used
    used.clear()
    monkeypatch.setenv("FEDREC_KERNELS", "off")
    added(lists(), DECAYS[0])
    assert not used


def test_the_reference_names_the_device_of_everything_it_makes(monkeypatch):
    """Where another device is the default, what is made without naming one does not fit the rest."""
    monkeypatch.setenv("FEDREC_KERNELS", "off")
    items, (past, after) = lists(), (torch.zeros(ITEMS, ITEMS, dtype=torch.int64) for _ in range(2))
    expected, lengths = added(items, DECAYS[0]), (items >= 0).sum(1)
    with torch.device("meta"):
        add_histories(past, after, items, lengths, DECAYS[0])
    assert torch.equal(past, expected[0])
    assert torch.equal(after, expected[1])


def test_nobody_adds_nothing(monkeypatch):
    for kernels in ("on", "off"):
        monkeypatch.setenv("FEDREC_KERNELS", kernels)
        for rows in (lists()[:0], lists((0, 0))):
            assert not any(part.any() for part in added(rows, DECAYS[0]))


def test_without_history_there_is_no_distance():
    tables = DECAYS[0].tables(0)
    assert [len(table) for table in tables[:3]] == [1, 1, 1]
    assert (tables.near.tolist(), tables.left.tolist(), tables.after.tolist()) == ([1.0], [0.0], [0])
    assert DECAYS[0].norms(0).tolist() == [0.0]
