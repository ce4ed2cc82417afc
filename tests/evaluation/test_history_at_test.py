"""What a client scores with when its test item is ranked: training items, or the validation item, too."""

from pathlib import Path

import numpy as np
import pytest
import torch

import fedrec
from fedrec.evaluation import Evaluator
from fedrec.methods import BUILT_IN, find
from fedrec.protocol import HONEST
from fedrec.report.rows import SavedRun, study_of

FOLDING = ["ease", "itemknn", "fedgram", "slist", "fedslist", "fedgains", "sasrec", "fedsasrec"]
NETWORK = {"dim": 8, "layers": 1, "init_std": 0.3}


def settings(name):
    if name in ("ease", "fedgram", "slist", "fedslist", "fedgains"):
        return {"lam": 20}
    return NETWORK if name in ("sasrec", "fedsasrec") else {}


def trained(name, split):
    return fedrec.train(fedrec.create(name, **settings(name)), split, rounds=1, progress=False)


def at_test(split, what):
    protocol = split.protocol.with_options(history_at_test=what)
    return protocol.split(split.data, seed=0)


def test_all_methods_that_fold_in_are_known():
    assert [name for name in BUILT_IN if find(name).folds_in] == [n for n in BUILT_IN if n in (*FOLDING, "blend")]


@pytest.mark.parametrize("name", FOLDING)
@pytest.mark.parametrize("options", [{}, {"delta_q": 2.0}], ids=["", "fading"])
def test_scores_are_those_of_a_client_who_always_had_the_item(small, name, options):
    if options and "delta_q" not in find(name).Config.model_fields:
        pytest.skip("nothing fades here")
    run = fedrec.train(fedrec.create(name, **settings(name) | options), small, rounds=1, progress=False)
    everybody = torch.arange(small.data.n_users)
    later = torch.from_numpy(small.validation.items.values.astype(np.int64))[:, None]
    found = run.trainer.scores(everybody, later=later)
    longer = with_validation(small)
    # The same model, of whose clients each has one item more.
    other = run.method.trainer(longer, fedrec.federation.trainer.Setup(0))
    if name in ("fedgram", "fedslist", "fedgains", "fedsasrec"):
        other.half.load_state(run.trainer.server)
        if name == "fedgram":
            other.store.at(everybody)["history"] = torch.from_numpy(longer.own_items(everybody.numpy()))
    else:
        other.load_state(run.trainer.state())
    assert torch.allclose(found, other.scores(everybody), atol=1e-6)
    assert not torch.allclose(found, run.trainer.scores(everybody), atol=1e-3)
    none = torch.full((len(everybody), 2), -1)
    assert torch.allclose(run.trainer.scores(everybody, later=none), run.trainer.scores(everybody), atol=1e-6)


def with_validation(split):
    """The training view of clients who have their validation item, too, as their newest."""
    view, held = split.training, split.validation.items
    build = type(held).build
    lists = {}
    for kind in ("positives", "history"):
        old = getattr(view, kind)
        owners, values = np.concatenate([old.owners, held.owners]), np.concatenate([old.values, held.values])
        lists[kind] = build(owners, values, len(held))
    return type(view)(view.n_clients, view.n_items, lists["positives"], lists["positives"], lists["history"])


@pytest.mark.parametrize("name", ["fedslist", "ease", "fedmf"])
def test_only_test_values_of_methods_that_fold_in_change(small, name):
    plain, longer = (trained(name, at_test(small, what)).result for what in ("train", "train+validation"))
    assert plain.validation == longer.validation
    assert (plain.test == longer.test) == (name == "fedmf")
    assert longer.protocol_options.history_at_test == "train+validation"
    assert plain.history_at_test == "train"
    assert longer.history_at_test == ("train" if name == "fedmf" else "train+validation")


def test_the_validation_item_itself_is_no_rival_at_test(small):
    split = at_test(small, "train+validation")
    asked = []

    def folded(clients, later):
        asked.append(later)
        return torch.zeros(len(clients), split.data.n_items).scatter_(1, later, 9.0)

    plain = lambda clients: torch.zeros(len(clients), split.data.n_items)  # noqa: E731
    evaluator = Evaluator(split)
    found, expected = (evaluator.evaluate(plain, "validation", "test", folded=f) for f in (folded, None))
    assert found["test"].full["hr@10"] == pytest.approx(expected["test"].full["hr@10"])
    assert torch.equal(torch.cat(asked)[:, 0], torch.from_numpy(split.validation.items.values.astype(np.int64)))


def test_what_came_later_does_not_count_at_validation_whatever_is_asked_for_first(small):
    split = at_test(small, "train+validation")
    plain = lambda clients: torch.zeros(len(clients), split.data.n_items)  # noqa: E731
    folded = lambda clients, later: plain(clients).scatter_(1, later, 9.0)  # noqa: E731
    found = [
        Evaluator(split).evaluate(plain, *parts, folded=folded)
        for parts in (("validation", "test"), ("test", "validation"))
    ]
    assert found[0]["validation"].means() == found[1]["validation"].means()


def test_the_split_is_the_same_but_its_hash_is_not(small):
    one, other = (at_test(small, what) for what in ("train", "train+validation"))
    assert one.hash != other.hash
    assert np.array_equal(one.training.positives.values, other.training.positives.values)
    assert small.hash == small.protocol.split(small.data, seed=0).hash


def test_the_docs_name_every_method_that_cannot_fold_in():
    text = (Path(__file__).parents[2] / "docs" / "protocols.md").read_text(encoding="utf-8")
    can, cannot = text.partition("All other methods cannot")[::2]
    for name in BUILT_IN:
        part = can if find(name).folds_in and name != "blend" else cannot
        assert f"`{name}`" in part, name


def test_tables_of_runs_and_reports_say_what_was_known(tmp_path):
    split = HONEST.with_options(history_at_test="train+validation").split(fedrec.load("demo"), seed=0)
    run = fedrec.train("ease", split, rounds=1, progress=False)
    assert run.result.shown_label == "ease (knows validation items)"
    row = SavedRun(tmp_path, run.result)
    assert [found.label for found in study_of([row]).rows] == ["ease (knows validation items)"]
    assert fedrec.train("popularity", split, rounds=1, progress=False).result.shown_label == "popularity"
