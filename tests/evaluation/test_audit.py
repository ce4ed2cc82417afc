"""The canary: the default protocol stays at chance for ever; the papers' protocol does not."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

import fedrec
from fedrec.evaluation import Evaluation, Evaluator, audit
from fedrec.evaluation.audit import counting_scorer
from fedrec.sampling.negatives import Sampler


def test_canary_on_demo(demo):
    report = audit([fedrec.Protocol(), "paper"], demo, rounds=(1, 100))["protocols"]
    honest, paper = report["honest"], report["paper"]
    assert honest["leaks"] is False
    assert honest["rounds"]["100"]["sampled"]["hr@10"] == pytest.approx(0.10, abs=0.03)
    assert honest["rounds"]["100"]["full"]["hr@10"] < 0.06
    assert honest["verdict"].startswith("honest")
    assert paper["leaks"] is True
    assert paper["rounds"]["100"]["sampled"]["hr@10"] > 0.95
    assert paper["rounds"]["100"]["full"]["hr@10"] > 0.8
    assert paper["verdict"].startswith("LEAKS")


def test_canary_on_ml_100k(real_data):
    data = real_data("ml-100k")
    report = audit(["honest", "paper"], data, rounds=(100,))["protocols"]
    assert report["honest"]["rounds"]["100"]["sampled"]["hr@10"] == pytest.approx(0.10, abs=0.03)
    assert report["paper"]["rounds"]["100"]["sampled"]["hr@10"] >= 0.99


def test_an_own_protocol_can_be_audited(demo):
    mine = fedrec.HONEST.with_options(pool="all")
    report = audit(mine, demo, rounds=(60,))
    assert report["protocols"]["honest*"]["leaks"] is True
    assert report["protocols"]["honest*"]["rounds"]["60"]["sampled"]["hr@10"] > 0.8


@pytest.fixture(scope="module")
def few(small):
    """A report on forty clients: an honest protocol, a leaking one, and one that leaks only by what it selects on."""
    honest = fedrec.HONEST.with_options(min_interactions=5, candidates=20)
    leaking = fedrec.PAPER.with_options(min_interactions=5, candidates=20)
    heard = []
    report = audit(
        [honest, leaking, honest.with_options(select_on="test"), "hetefedrec"],
        small.data,
        rounds=(20, 3, 20),
        seed=5,
        progress=lambda name, number: heard.append((name, number)),
    )
    return report, heard


def test_a_report_names_its_data_seed_and_every_protocol(few):
    report, _ = few
    assert (report["data"], report["seed"]) == ("small", 5)
    assert list(report["protocols"]) == ["honest*", "paper*", "honest**", "hetefedrec"]
    for found in report["protocols"].values():
        assert list(found) == ["leaks", "why", "chance", "verdict", "split_hash", "filtered", "rounds"]
        assert list(found["rounds"]) == ["3", "20"]
    assert json.loads(json.dumps(report)) == report


def test_same_names_do_not_replace_each_other(small):
    mine = fedrec.HONEST.with_options(min_interactions=5, candidates=20)
    report = audit([mine, fedrec.HONEST.with_options(min_interactions=5, candidates=19)], small.data, rounds=(1,))
    assert list(report["protocols"]) == ["honest*", "honest* (2)"]
    assert report["seed"] == 0
    assert report["protocols"]["honest*"]["split_hash"] == mine.split(small.data, 0).hash
    assert list(audit(mine, small.data, rounds=(2,))["protocols"]["honest*"]["rounds"]) == ["2"]


def test_an_audit_asks_after_1_10_and_100_rounds_unless_told(monkeypatch, small):
    asked = []
    means = {"hr@10": np.zeros(1)}
    module = sys.modules["fedrec.evaluation.audit"]
    monkeypatch.setattr(
        module,
        "counting_scorer",
        lambda split, rounds, progress: asked.append(rounds) or [(n, Evaluation(full=means)) for n in rounds],
    )
    audit("hetefedrec", small.data)
    assert asked == [[1, 10, 100]]
    assert module.default_protocols() == ["honest", "paper", "pfedrec", "hetefedrec"]


def test_progress_is_told_after_every_round(few):
    names = ["honest*", "paper*", "honest**", "hetefedrec"]
    assert few[1] == [(name, number) for name in names for number in range(1, 21)]


def test_chance_averages_ties_whatever_the_protocol_says(few, small):
    honest, leaking, _, full_only = few[0]["protocols"].values()
    assert honest["chance"]["hr@10"] == pytest.approx(10 / 21)  # one of 21
    assert leaking["chance"]["hr@10"] == pytest.approx(10 / 21)  # although it lets the held-out item lose ties
    unseen = small.data.n_items - fedrec.HETEFEDREC.split(small.data, 5).training.positives.counts
    assert full_only["chance"]["recall@20"] == pytest.approx(np.minimum(1, 20 / unseen).mean(), abs=0.03)


def test_verdicts_say_what_was_reached_and_what_chance_is(few):
    honest, leaking, selecting, full_only = few[0]["protocols"].values()
    reached = {id(found): found["rounds"]["20"].get("sampled", found["rounds"]["20"]["full"]) for found in
               (honest, leaking, selecting, full_only)}  # fmt: skip

    def at(found):
        return f"hr@10 {reached[id(found)]['hr@10']:.3f}, chance {found['chance']['hr@10']:.3f}"

    assert honest["verdict"] == f"honest: a scorer that learns nothing stays at chance ({at(honest)})."
    assert full_only["verdict"] == f"honest: a scorer that learns nothing stays at chance ({at(full_only)})."
    assert leaking["verdict"] == (
        f"LEAKS: a scorer that learns nothing reaches {at(leaking)}; results under this protocol prove nothing."
    )
    assert selecting["verdict"] == (
        "leaks by construction (the reported round is chosen on the test set), "
        f"though counting gains little here: {at(selecting)}."
    )
    assert [found["leaks"] for found in (honest, leaking, selecting, full_only)] == [False, True, True, False]
    assert [len(found["why"]) for found in (honest, leaking, selecting, full_only)] == [0, 2, 1, 0]


@pytest.mark.parametrize(
    ("got", "chance", "start"),
    [(0.23, 0.1, "LEAKS"), (0.219, 0.1, "honest"), (0.05, 0.01, "LEAKS"), (0.039, 0.01, "honest")],
)
def test_more_than_twice_chance_is_a_leak(small, monkeypatch, got, chance, start):
    module = sys.modules["fedrec.evaluation.audit"]
    monkeypatch.setattr(module, "chance", lambda split: {"ndcg@5": chance})
    assert module._verdict(small, {"full": {"ndcg@5": got}}).startswith(start)


@pytest.mark.parametrize(
    ("preset", "rounds"),
    [(fedrec.HONEST, 7), (fedrec.PAPER, 7), (fedrec.HONEST.with_options(scores="sigmoid"), 120)],
    ids=["honest", "paper", "long"],
)
def test_the_counting_scorer_counts_negatives_of_all_rounds_so_far(small, preset, rounds):
    """Counts are ranked as they are: sigmoids of large ones would all be 0."""
    split = preset.with_options(min_interactions=5, candidates=20).split(small.data, 5)
    sampler, counts = Sampler(split.training), torch.zeros(40, 60)
    for number in range(rounds):
        drawn = sampler.draw(torch.arange(40), negatives=4, seed=5, round=number)
        for c in range(40):
            negative = drawn.items[c, : drawn.counts[c]][drawn.labels[c, : drawn.counts[c]] == 0]
            counts[c] += torch.bincount(negative, minlength=60)
    assert rounds == 7 or counts.max() > 150, "beyond what a float32 sigmoid tells apart"
    ranked = split.protocol.model_copy(update={"scores": "logits"})
    expected = Evaluator(replace(split, protocol=ranked)).evaluate(lambda clients: -counts[clients], "test")["test"]
    [(number, found)] = counting_scorer(split, [rounds])
    assert number == rounds
    for name, values in expected.sampled.items():
        np.testing.assert_array_equal(found.sampled[name], values)
    for name, values in expected.full.items():
        np.testing.assert_array_equal(found.full[name], values)


def test_held_out_items_are_drawn_at_the_uniform_rate_only_if_honest(honest, paper):
    rounds, found = 40, {}
    for split in (honest, paper):
        sampler, clients = Sampler(split.training), torch.arange(split.data.n_users)
        target = torch.from_numpy(split.test.items.values.astype(np.int64))
        hits = 0
        for number in range(rounds):
            drawn = sampler.draw(clients, negatives=4, seed=0, round=number)
            real = (torch.arange(drawn.items.shape[1]) < drawn.counts[:, None]) & (drawn.labels == 0)
            hits += int(((drawn.items == target[:, None]) & real).sum())
        found[split.protocol.name] = hits
    n = honest.training.positives.counts
    expected = rounds * (4 * n / (honest.data.n_items - n)).sum()
    assert found["paper"] == 0
    assert abs(found["honest"] - expected) < 4 * np.sqrt(expected)
