import dataclasses

import pytest
import torch

import fedrec
from fedrec.errors import ConfigError, DataError

SCORED_BY_HISTORY = {
    "fedslist": {},
    "fedslist kept": {"keep": 25, "bits": 8},
    "fedslist rank": {"rank": 6},
    "slist": {"delta_q": 2},
    "ease": {"delta_q": 3},
    "fedgram": {},
    "fedgram faded": {"delta_q": 3},
    "fedgram rank": {"rank": 5},
    "fedgram top": {"top_items": 50},
    "itemknn": {"k": 10},
}


@pytest.fixture(scope="module", params=SCORED_BY_HISTORY)
def run(request, small):
    name, options = request.param.split()[0], SCORED_BY_HISTORY[request.param]
    return fedrec.train(fedrec.create(name, **options), small, progress=False, evaluate_every=3)


def test_parts_are_the_score(run, small):
    user, everything = small.data.user_ids[3], small.data.item_ids
    scores = run.trainer.scores(torch.tensor([3]))[0]
    found = run.explain(user, *everything, most=1000)
    past = {everything[i] for i in small.training.positives[3]}
    # Items outside of fedgram's model rank by popularity, with which the past has nothing to do.
    modelled = run.trainer.server["items"] if run.method.name == "fedgram" else range(len(everything))
    outside = set(everything) - {everything[i] for i in modelled}
    for one, score in zip(found, scores.tolist(), strict=True):
        assert one.score == pytest.approx(score, abs=1e-5)
        assert {reason.item for reason in one.reasons} <= past
        if one.item in outside:
            assert not one.reasons
        else:
            assert one.rest == pytest.approx(0, abs=1e-4)
    assert sum(len(one.reasons) for one in found) > 5 * len(past)


def test_the_largest_reasons_come_first_and_the_rest_is_the_rest(run, small):
    (all_of_them,) = run.explain(5, run.recommend(5, 1)[0][0], most=1000)
    (few,) = run.explain(5, all_of_them.item, most=2)
    assert few.reasons == all_of_them.reasons[:2]
    sizes = [abs(reason.part) for reason in all_of_them.reasons]
    assert sizes == sorted(sizes, reverse=True)
    assert few.rest == pytest.approx(sum(reason.part for reason in all_of_them.reasons[2:]), abs=1e-4)


def test_somebody_new_with_the_same_items_gets_the_same_scores(run, small):
    histories = [torch.tensor(small.training.own_list(client)) for client in range(6)]
    padded = torch.nn.utils.rnn.pad_sequence(histories, batch_first=True, padding_value=-1)
    found = run.trainer.scores_from(padded)
    assert torch.allclose(found, run.trainer.scores(torch.arange(6)), atol=1e-5)
    nobody = run.trainer.scores_from(torch.full((1, 2), -1))
    assert nobody.shape == found[:1].shape
    assert not torch.allclose(nobody, found[:1])


def test_what_cannot_be_explained_is_one_sentence(run, small):
    with pytest.raises(DataError, match="has no item 'nothing'"):
        run.explain(5, "nothing")
    with pytest.raises(ConfigError, match="use 0 or more"):
        run.explain(5, small.data.item_ids[0], most=-1)
    other = dataclasses.replace(run, method=fedrec.create("fedmf"))
    with pytest.raises(ConfigError, match="fedmf cannot say"):
        other.explain(5, small.data.item_ids[0])
