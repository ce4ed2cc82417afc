from __future__ import annotations

import sys
from dataclasses import fields
from types import ModuleType

import numpy as np
import pytest
import torch

from fedrec.data.training import Ragged, TrainingView
from fedrec.errors import ConfigError
from fedrec.sampling import negatives, streams
from fedrec.sampling.negatives import Sampler
from fedrec.sampling.samples import Samples


def make_view(n: int = 30, m: int = 40, seed: int = 0, extra: int = 2) -> TrainingView:
    """Clients with 0 to 20 positives, some repeated, and ``extra`` excluded items beside them."""
    rng = np.random.default_rng(seed)
    owners, values, excluded_owners, excluded = [], [], [], []
    for client in range(n):
        size = int(rng.integers(0, 16)) if client else 0
        items = rng.choice(m, size + extra, replace=False)
        own = np.concatenate([items[:size], items[: size // 4]])
        owners += [client] * len(own)
        values += own.tolist()
        excluded_owners += [client] * len(items)
        excluded += sorted(items.tolist())
    return TrainingView(
        n,
        m,
        Ragged.build(np.array(owners, np.int64), np.array(values, np.int64), n),
        Ragged.build(np.array(excluded_owners, np.int64), np.array(excluded, np.int64), n),
    )


def assert_same(a: Samples, b: Samples) -> None:
    for field in fields(Samples):
        x, y = getattr(a, field.name), getattr(b, field.name)
        if isinstance(x, torch.Tensor):
            assert x.dtype == y.dtype, field.name
            assert torch.equal(x.cpu(), y.cpu()), field.name
        else:
            assert x == y, field.name


@pytest.mark.parametrize("negatives", [0, 1, 4, 7])
@pytest.mark.parametrize("reference", [False, True])
def test_samples_are_what_the_definition_says(negatives, reference):
    view, clients = make_view(), torch.tensor([5, 0, 29, 3, 11])
    samples = Sampler(view, reference=reference).draw(clients, negatives=negatives, seed=9, round=4)
    group = 1 + negatives
    assert samples.items.dtype == samples.slots.dtype == samples.rows.dtype == torch.int32
    assert samples.clients.tolist() == clients.tolist()
    for c, client in enumerate(clients.tolist()):
        positives, excluded = view.positives[client], set(view.excluded[client].tolist())
        count, rows = int(samples.counts[c]), samples.rows[c, : samples.row_counts[c]].tolist()
        assert int(samples.positives[c]) == len(positives)
        assert count == len(positives) * group
        groups = samples.items[c, :count].view(-1, group)
        assert groups[:, 0].tolist() == positives.tolist()
        for drawn in groups[:, 1:].tolist():
            assert len(set(drawn)) == negatives
            assert not excluded & set(drawn)
        assert (samples.labels[c, :count].view(-1, group) == torch.eye(group)[0]).all()
        assert rows == sorted(set(samples.items[c, :count].tolist()))
        assert [rows[slot] for slot in samples.slots[c, :count].tolist()] == samples.items[c, :count].tolist()
        for padded in (samples.items, samples.labels, samples.slots):
            assert not padded[c, count:].any()
        assert not samples.rows[c, samples.row_counts[c] :].any()
    assert samples.items.shape[1] == int(samples.counts.max())
    assert samples.rows.shape[1] == int(samples.row_counts.max())


@pytest.mark.parametrize("negatives", [0, 1, 4, 20])
@pytest.mark.parametrize("extra", [0, 2])
@pytest.mark.parametrize("seed", [3, -1, 2**64 - 5])
def test_compiled_and_torch_draw_the_same(negatives, extra, seed):
    view, clients = make_view(extra=extra), torch.randperm(30, generator=torch.Generator().manual_seed(1))
    drawn = [
        Sampler(view, reference=reference).draw(clients, negatives=negatives, seed=seed, round=2)
        for reference in (False, True)
    ]
    assert_same(*drawn)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_draws_the_same():
    view, clients = make_view(), torch.arange(30)
    drawn = [Sampler(view, device).draw(clients, negatives=4, seed=3, round=2) for device in ("cpu", "cuda")]
    assert drawn[1].items.is_cuda
    assert_same(*drawn)


def test_draw_depends_on_client_seed_and_round_but_not_on_cohort_or_threads(other_threads):
    view = make_view(n=200)
    sampler = Sampler(view)
    together = sampler.draw(torch.arange(200), negatives=4, seed=1, round=0)
    threads = torch.get_num_threads()
    torch.set_num_threads(other_threads)
    try:
        assert_same(together, sampler.draw(torch.arange(200), negatives=4, seed=1, round=0))
    finally:
        torch.set_num_threads(threads)
    for client in (7, 150):
        alone = sampler.draw(torch.tensor([client]), negatives=4, seed=1, round=0)
        assert torch.equal(alone.items[0], together.items[client, : alone.counts[0]])
        assert torch.equal(alone.rows[0], together.rows[client, : alone.row_counts[0]])
    for seed, round in ((2, 0), (1, 1)):
        assert not torch.equal(
            together.items, sampler.draw(torch.arange(200), negatives=4, seed=seed, round=round).items
        )


def test_negatives_are_uniform_over_the_pool():
    one = Ragged.build(np.zeros(5, np.int64), np.arange(5), 1)
    sampler = Sampler(TrainingView(1, 25, one, one))
    counts = np.zeros(25)
    for round in range(1000):
        samples = sampler.draw(torch.tensor([0]), negatives=4, seed=0, round=round)
        counts += np.bincount(samples.items[0][samples.labels[0] == 0].numpy(), minlength=25)
    assert (counts[:5] == 0).all()
    # 1000 * 5 * 4 draws over 20 items. Distinct draws vary a little less than independent ones.
    assert ((counts[5:] - 1000) ** 2 / 1000).sum() < 50  # 19 degrees of freedom
    assert counts[5:].std() > 5


@pytest.mark.parametrize("reference", [False, True])
def test_a_pool_as_small_as_the_number_of_negatives_is_drawn_completely(reference):
    items = Ragged.build(np.zeros(6, np.int64), np.arange(6), 1)
    samples = Sampler(TrainingView(1, 10, items, items), reference=reference).draw(
        torch.tensor([0]), negatives=4, seed=0, round=0
    )
    assert samples.items.view(6, 5)[:, 1:].sort(1).values.tolist() == [[6, 7, 8, 9]] * 6


@pytest.mark.parametrize("reference", [False, True])
def test_too_small_a_pool_is_an_error_that_names_the_client(reference):
    items = Ragged.build(np.array([0, 0, 1, 1, 1]), np.array([0, 1, 0, 1, 2]), 3)
    sampler = Sampler(TrainingView(3, 6, items, items), reference=reference)
    with pytest.raises(ConfigError, match="client 1 has 3 items to draw negatives from, but 4"):
        sampler.draw(torch.tensor([0, 1, 2]), negatives=4, seed=0, round=0)
    assert sampler.draw(torch.tensor([0, 2]), negatives=4, seed=0, round=0).counts.tolist() == [10, 0]


@pytest.mark.parametrize(("clients", "negatives"), [([0, 30], 4), ([-1], 4), ([3], -1)])
def test_bad_arguments_are_errors(clients, negatives):
    with pytest.raises(ConfigError):
        Sampler(make_view()).draw(torch.tensor(clients), negatives=negatives, seed=0, round=0)


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("clients", [[], [0]])
def test_empty_cohorts_and_clients_without_positives(clients, reference):
    samples = Sampler(make_view(), reference=reference).draw(
        torch.tensor(clients, dtype=torch.int64), negatives=4, seed=0, round=0
    )
    assert samples.items.shape == (len(clients), 0)
    assert samples.rows.shape == (len(clients), 0)
    assert samples.counts.tolist() == [0] * len(clients)


def test_compiled_code_draws_unless_the_reference_is_asked_for(monkeypatch):
    view, called = make_view(), []
    monkeypatch.setattr(negatives, "draw_range", lambda *given: called.append(given))
    Sampler(view, reference=True).draw(torch.arange(30), negatives=2, seed=0, round=0)
    assert not called
    Sampler(view).draw(torch.arange(30), negatives=2, seed=0, round=0)
    assert called


def test_samples_say_which_are_real():
    samples = Sampler(make_view()).draw(torch.tensor([5, 0, 29]), negatives=2, seed=0, round=0)
    assert samples.valid.sum(1).tolist() == samples.counts.tolist()
    assert samples.valid_rows.sum(1).tolist() == samples.row_counts.tolist()
    assert samples.valid.shape == samples.items.shape
    assert (samples.valid[:, :-1] >= samples.valid[:, 1:]).all(), "padding comes last"


@pytest.mark.parametrize(
    ("clients", "negatives", "sentence"),
    [
        ([0, 30], 4, r"^a cohort names clients outside 0\.\.29; check the client numbers\.$"),
        ([-1, 3], 4, r"^a cohort names clients outside 0\.\.29"),
        ([3], -1, r"^negatives is -1; set it to 0 or more\.$"),
    ],
)
def test_bad_arguments_are_named(clients, negatives, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Sampler(make_view()).draw(torch.tensor(clients), negatives=negatives, seed=0, round=0)


def test_no_negatives_are_no_error_also_for_clients_that_know_everything():
    everything = Ragged.build(np.zeros(5, np.int64), np.arange(5), 1)
    samples = Sampler(TrainingView(1, 5, everything, everything)).draw(torch.tensor([0]), negatives=0, seed=0, round=0)
    assert samples.items.tolist() == [[0, 1, 2, 3, 4]]


def by_the_definition(clients, keys, counts, positives, excluded, *, n_items, negatives, width, most_excluded):
    """What the compiled way to draw on a GPU gives back, one number after the other."""
    (starts, values), (from_, refused) = ([x.tolist() for x in lists] for lists in (positives, excluded))
    samples, labels, slots = ([[0] * width for _ in keys] for _ in range(3))
    rows = []
    for c, (client, key) in enumerate(zip(clients.tolist(), keys, strict=True)):
        never, drawn = refused[from_[client] : from_[client + 1]], []
        assert len(never) <= most_excluded
        for j, positive in enumerate(values[starts[client] : starts[client + 1]]):
            group = [positive]
            for slot in range(negatives):
                index = torch.tensor(j * negatives + slot)
                while (item := int(streams.below(key, index, n_items))) in never or item in group[1:]:
                    index += 2**32
                group.append(item)
            drawn += group
        assert len(drawn) == int(counts[c])
        rows.append(sorted(set(drawn)))
        samples[c][: len(drawn)] = drawn
        labels[c][: len(drawn) : 1 + negatives] = [1] * (len(drawn) // (1 + negatives))
        slots[c][: len(drawn)] = [rows[c].index(item) for item in drawn]
    most = max(map(len, rows), default=0)
    ints = [torch.tensor(x, dtype=torch.int32).view(len(rows), width) for x in (samples, slots)]
    padded = torch.tensor([own + [0] * (most - len(own)) for own in rows], dtype=torch.int32).view(len(rows), most)
    made = torch.tensor(labels, dtype=torch.float32).view(len(rows), width)
    return ints[0], made, ints[1], padded, torch.tensor([len(own) for own in rows], dtype=torch.int64)


@pytest.mark.parametrize("clients", [[5, 0, 29, 3], [], [0]])
def test_what_a_gpu_is_asked_to_draw_is_what_is_drawn_here(monkeypatch, clients):
    """In the place of the GPU the definition answers."""
    view, asked, width = make_view(), torch.tensor(clients, dtype=torch.int64), []

    def draw_samples(*given, **options):
        width.append((options["width"], options["most_excluded"]))
        return by_the_definition(*given, **options)

    gpu = ModuleType("gpu_negatives")
    gpu.draw_samples = draw_samples
    monkeypatch.setitem(sys.modules, "fedrec.sampling.gpu_negatives", gpu)
    with monkeypatch.context() as patch:
        patch.setattr(negatives.dispatch, "compiled_on", lambda device: "gpu")
        sampler = Sampler(view)
    here = Sampler(view).draw(asked, negatives=3, seed=2**63 + 1, round=6)
    assert_same(sampler.draw(asked, negatives=3, seed=2**63 + 1, round=6), here)
    longest = int(here.counts.max()) if clients else 0
    assert width == [(longest, max(map(len, (view.excluded[client] for client in range(30)))))]


def test_the_reference_names_the_device_of_everything_it_makes():
    """Where another device is the default, as a GPU could be: what is made without naming one does not fit the rest."""
    view, clients = make_view(), torch.tensor([5, 0, 29, 3])
    here = Sampler(view).draw(clients, negatives=3, seed=1, round=2)
    with torch.device("meta"):
        there = Sampler(view, "cpu", reference=True).draw(clients, negatives=3, seed=1, round=2)
        valid = there.valid, there.valid_rows
    assert_same(here, there)
    assert torch.equal(valid[0], here.valid)
    assert torch.equal(valid[1], here.valid_rows)


def test_where_nothing_is_excluded_everything_may_be_drawn():
    """Also by the reference, which has nothing to search in then."""
    items, nothing = Ragged.build(np.zeros(3, np.int64), np.arange(3), 1), np.zeros(0, np.int64)
    view = TrainingView(1, 4, items, Ragged.build(nothing, nothing, 1))
    drawn = [
        Sampler(view, reference=one).draw(torch.tensor([0]), negatives=4, seed=0, round=0) for one in (False, True)
    ]
    assert_same(*drawn)
    assert drawn[0].items.view(3, 5)[:, 1:].sort(1).values.tolist() == [[0, 1, 2, 3]] * 3
