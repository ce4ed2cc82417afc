"""Who takes part, and what a method does unless it says otherwise."""

import pytest
import torch

import fedrec
from fedrec.federation.method import EachMethod, SumMethod
from fedrec.federation.payload import Upload
from fedrec.federation.task import Task
from fedrec.methods.fedmf import FedMF, Local


def task(n=50, seed=0):
    counts = torch.arange(n) % 5  # every fifth client has nothing to train on
    return Task(n, 30, counts, seed, torch.device("cpu"))


def drawn(share, round=0, **about):
    return FedMF(participation=share).participants(task(**about), {}, round).tolist()


@pytest.mark.parametrize(("share", "size"), [(1.0, 40), (0.5, 20), (0.26, 10), (0.99, 39), (1e-6, 1)])
def test_a_share_of_those_with_training_items_takes_part(share, size):
    """Rounded down, but never nobody; nobody twice, in order."""
    for round in range(5):
        who = drawn(share, round)
        assert len(set(who)) == len(who) == size
        assert who == sorted(who)
        assert all(client % 5 for client in who)


def test_everybody_takes_part_equally_often_and_others_every_round():
    visits = torch.zeros(50)
    for round in range(400):
        visits[drawn(0.5, round)] += 1
    assert (visits[::5] == 0).all()
    able = visits[visits > 0]
    assert len(able) == 40
    assert (able - 200).abs().max() < 5 * 10  # each visit is one of two: standard deviation 10
    assert drawn(0.5, 0) != drawn(0.5, 1)
    assert drawn(0.5, 0) != drawn(0.5, 0, seed=1)
    assert drawn(0.5, 7) == drawn(0.5, 7)


def test_what_a_method_does_unless_it_says_otherwise(small):
    method = FedMF()
    assert Local().participation == 1.0
    assert (method.participation, FedMF(participation=0.25).participation) == (1.0, 0.25)
    assert method.blocks(task()) == 1
    assert [method.sampling_round(round) for round in (0, 3)] == [0, 3]
    assert method.kinds(task(), {}, torch.arange(3)) is None
    assert method.own_data(small.training, torch.arange(3)) == {}
    assert method.privacy_problem() is None
    assert method.server_bytes(10, 20, 1000) == 0
    assert method.views == ()
    assert method.mixture(task(), None, {}) is None
    assert method.client_groups(task()) == {}
    assert method.diagnostics(task(), {}, None) == {}
    assert not method.silent
    with pytest.raises(KeyError, match="other"):
        method.view_scores(task(), "other", None, {})


class Sums(FedMF):
    """Notes what its server's step is given."""

    def contribute(self, task, upload, total):
        total.add("clients", len(upload.clients))

    def step(self, task, server, total, round):
        return {"task": task, "before": server, "round": round, "total": dict(total)}


def uploads():
    return [
        Upload(torch.arange(n), torch.ones(n), parts)
        for n, parts in ((2, {"x": torch.ones(2)}), (9, {}), (3, {"x": 1}))
    ]


def test_a_sum_method_is_handed_sums_of_who_sent_something():
    about, before = task(), {"a": torch.ones(1)}
    assert issubclass(Sums, SumMethod)
    gathering = Sums().gather(about)
    for upload in uploads():
        gathering.add(upload)
    after = gathering.step(before, 7)
    assert after["task"] is about
    assert after["before"] is before
    assert (after["round"], after["total"]) == (7, {"clients": 5.0})


def test_a_method_that_needs_each_upload_is_handed_those_that_are_not_empty(monkeypatch):
    method, about, before, seen = fedrec.create("gpfedrec"), task(), {"a": torch.ones(1)}, []
    assert isinstance(method, EachMethod)
    first, second = method.gather(about), method.gather(about)
    sent = uploads()
    for upload in sent:
        first.add(upload)
    monkeypatch.setattr(type(method), "step", lambda self, *given: seen.append(given))
    first.step(before, 7)
    second.step(before, 8)
    assert seen == [(about, before, [sent[0], sent[2]], 7), (about, before, [], 8)]
